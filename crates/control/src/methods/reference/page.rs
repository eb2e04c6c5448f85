//! Renders `docs/reference/control-api.md`.

use std::fmt::Write as _;
use std::path::Path;

use crate::access::Role;
use crate::methods;
use crate::methods::method::{Method, ResultType};
use crate::methods::params::{Param, ParamType, Presence};

const HEAD: &str = "\
# Control API reference

Rendered from the method table of the server, which also answers `rpc.discover` with the same facts
as an [OpenRPC](https://spec.open-rpc.org) document; over HTTP it is at `/openrpc.json`. Transports,
errors and the meaning of the results: [control API](../how-to/control-api.md).

Parameters have names; a missing parameter and null are the same. A method of Snapcast ignores
unknown parameters, as snapserver does. An `Aulos.` method answers an unknown parameter and a value
of another type with -32602, and `data` names the parameter, what it must be and what was found.

## Names

A parameter whose value is a *client*, a *group* or a *station* takes its id (of a station its name), or
its name as the page shows it: of a client the one that it was given, or else that of its machine; of a
group its own, or else that of its clients, as `kitchen and bath`. An `Aulos.` method also takes the
beginning of an id or a name, if no other has the same. An id wins over a name, and a name over a
beginning; upper and lower case count in ids only. A text that names none or several is refused, and
`data` lists what there is. A method of Snapcast answers as snapserver does where a text names none.
";

fn render() -> String {
    let mut page = HEAD.to_owned();
    page += "\n## Permissions by role\n\nEach role includes those above it. The role `log` \
             is granted beside them.\n\n";
    page += "| role | methods |\n|---|---|\n";
    for role in Role::ALL.map(Role::name).into_iter().chain(["log"]) {
        let own = methods::all().filter(|method| method.requirement() == role);
        let names: Vec<String> = own.map(|method| format!("`{}`", method.name)).collect();
        writeln!(page, "| `{role}` | {} |", names.join(", ")).unwrap();
    }
    for (title, section) in methods::SECTIONS {
        write!(page, "\n## {title}\n").unwrap();
        section.iter().for_each(|method| render_method(&mut page, method));
    }
    page
}

fn render_method(page: &mut String, method: &Method) {
    write!(page, "\n### {}\n\n{}. Role: `{}`.", method.name, method.about, method.requirement())
        .unwrap();
    match method.result {
        ResultType::Ok => page.push_str(" Result: `\"ok\"`."),
        ResultType::Document(about) => write!(page, " Result: {about}.").unwrap(),
        ResultType::Members(members) => {
            let members: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
            write!(page, " Result: `{{{}}}`.", members.join(", ")).unwrap();
        }
    }
    if !method.notifications.is_empty() {
        let names: Vec<String> =
            method.notifications.iter().map(|name| format!("`{name}`")).collect();
        write!(page, " Notifications: {}.", names.join(", ")).unwrap();
    }
    if !method.aliases.is_empty() {
        write!(page, " Former names: {}.", method.aliases.join(", ")).unwrap();
    }
    page.push('\n');
    if !method.params.is_empty() {
        page.push_str("\n| parameter | value | default | |\n|---|---|---|---|\n");
        method.params.iter().for_each(|param| render_param(page, "", param));
    }
}

fn render_param(page: &mut String, prefix: &str, param: &Param) {
    let default = match param.presence {
        Presence::Required => "required".to_owned(),
        Presence::Optional => String::new(),
        Presence::Bool(value) => format!("{value}"),
        Presence::Number(value) => format!("{value}"),
        Presence::Text(value) => format!("`{value}`"),
    };
    let Param { name, kind, about, .. } = param;
    let kind = match kind {
        ParamType::Id(of) => format!("[{}](#names)", of.word()),
        ParamType::Ids(of) => format!("a list of [{}](#names)", of.plural()),
        ParamType::IdOrIds(of) => {
            format!("a [{}](#names) or a list of [{}](#names)", of.word(), of.plural())
        }
        other => other.to_string(),
    };
    writeln!(page, "| `{prefix}{name}` | {kind} | {default} | {about} |").unwrap();
    if let ParamType::Object(members, _) = param.kind {
        members.iter().for_each(|member| render_param(page, &format!("{name}."), member));
    }
}

#[test]
fn the_reference_page_is_that_of_the_method_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/control-api.md");
    aulos_blackbox::golden::compare_file(&page, &render());
}
