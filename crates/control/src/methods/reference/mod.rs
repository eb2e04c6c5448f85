//! Descriptions of the control methods: `General.GetRPCCommands` and the OpenRPC document.
//!
//! Both are rendered from the method table once, because it never changes.

#[cfg(test)]
mod page;

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::access::Role;
use crate::control::context::CallContext;
use crate::methods;
use crate::methods::method::{Method, ResultType};
use crate::methods::params::{Param, Presence, type_schema};
use crate::methods::rpc::CallOutput;

impl CallContext<'_> {
    /// The answer to `General.GetRPCCommands`.
    pub(crate) fn method_list(&self) -> CallOutput {
        CallOutput::Text(method_list(self.caller.role, self.caller.has_log).to_owned())
    }

    /// The answer to `rpc.discover`.
    pub(crate) fn openrpc(&self) -> CallOutput {
        CallOutput::Text(openrpc().to_owned())
    }
}

/// The result of `General.GetRPCCommands` as JSON. Even a caller without permissions may
/// request it.
fn method_list(role: Role, has_log: bool) -> &'static str {
    static LISTS: LazyLock<HashMap<(Role, bool), String>> = LazyLock::new(|| {
        let all = Role::ALL.into_iter().flat_map(|role| [(role, false), (role, true)]);
        all.map(|(role, has_log)| ((role, has_log), render_list(role, has_log))).collect()
    });
    LISTS.get(&(role, has_log)).map_or("", String::as_str)
}

/// The API as an OpenRPC 1.3 document, in JSON.
#[must_use]
pub fn openrpc() -> &'static str {
    static DOCUMENT: LazyLock<String> = LazyLock::new(|| openrpc_document().to_string());
    &DOCUMENT
}

fn render_list(role: Role, has_log: bool) -> String {
    let commands: Vec<_> = methods::all().map(|method| list_entry(method, role, has_log)).collect();
    json!({ "commands": commands }).to_string()
}

fn list_entry(method: &Method, role: Role, has_log: bool) -> Value {
    json!({
        "method": method.name,
        "description": method.about,
        "hasPermission": method.is_for(role, has_log),
        "requires": if method.role == Role::None { "" } else { method.requirement() },
    })
}

fn openrpc_document() -> Value {
    json!({
        "openrpc": "1.3.2",
        "info": {
            "title": "aulos control API",
            "description": "JSON-RPC 2.0 over TCP, WebSocket and HTTP. Parameters are named. \
                            `x-role` is the role that a method requires, and `x-notifications` are \
                            the notifications that other connections get after a successful call.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "methods": methods::all().map(openrpc_method).collect::<Vec<_>>(),
    })
}

fn openrpc_method(method: &Method) -> Value {
    let schema = match method.result {
        ResultType::Ok => json!({ "const": "ok" }),
        ResultType::Document(about) => json!({ "type": "object", "description": about }),
        ResultType::Members(members) => {
            let members =
                members.iter().map(|(name, types)| ((*name).to_owned(), type_schema(types)));
            json!({ "type": "object", "properties": members.collect::<Map<_, _>>() })
        }
    };
    // Required parameters come first, as OpenRPC demands.
    let (required, optional): (Vec<_>, Vec<_>) =
        method.params.iter().partition(|param| param.presence == Presence::Required);
    let params = required.into_iter().chain(optional).map(openrpc_param);
    json!({
        "name": method.name,
        "summary": method.about,
        "paramStructure": "by-name",
        "params": params.collect::<Vec<_>>(),
        "result": { "name": "result", "schema": schema },
        "x-role": method.requirement(),
        "x-aliases": method.aliases,
        "x-notifications": method.notifications,
    })
}

fn openrpc_param(param: &Param) -> Value {
    let mut content = json!({
        "name": param.name,
        "required": param.presence == Presence::Required,
        "schema": param.schema(),
    });
    if !param.about.is_empty() {
        content["description"] = json!(param.about);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_openrpc_document_describes_every_method_with_its_parameters() {
        let document: Value = serde_json::from_str(openrpc()).unwrap();
        let described = document["methods"].as_array().unwrap();
        assert!(document["openrpc"].is_string() && document["info"]["version"].is_string());
        assert_eq!(described.len(), methods::all().count());
        for (method, described) in methods::all().zip(described) {
            assert_eq!(described["name"], method.name);
            assert!(described["result"]["schema"].is_object());
            // As OpenRPC demands.
            let required = described["params"].as_array().unwrap().iter();
            let required: Vec<bool> =
                required.map(|param| param["required"].as_bool().unwrap()).collect();
            assert!(required.is_sorted_by(|first, next| first >= next), "{}", method.name);
        }
        let seconds = described.iter().find(|one| one["name"] == "Aulos.SetSource").unwrap();
        assert_eq!(
            seconds["params"][2]["schema"],
            json!({ "type": "number", "minimum": 0.1, "maximum": 86_400.0 })
        );
    }

    #[test]
    fn the_list_of_methods_has_the_permissions_of_its_caller() {
        for role in [Role::None, Role::Listen, Role::Control, Role::Admin] {
            let list: Value = serde_json::from_str(method_list(role, true)).unwrap();
            for (method, entry) in methods::all().zip(list["commands"].as_array().unwrap()) {
                assert_eq!(entry["method"], method.name);
                assert_eq!(entry["hasPermission"], role >= method.role, "{role} {}", method.name);
            }
            let list: Value = serde_json::from_str(method_list(role, false)).unwrap();
            for (method, entry) in methods::all().zip(list["commands"].as_array().unwrap()) {
                let may = method.is_for(role, false);
                assert_eq!(entry["hasPermission"], may, "{role} {}", method.name);
                assert!(!may || entry["requires"] != "log", "{role} {}", method.name);
            }
        }
    }
}
