//! Calls about the other nodes of a cluster.

use std::sync::Arc;

use aulos_proto::snap::control::RpcError;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::clients::registry::{clip_text, to_json_text};
use crate::cluster::node_document::NodeDocument;
use crate::cluster::{ClusterLink, ClusterState, NodeReport, StatusRequest};
use crate::control::context::CallContext;
use crate::control::state::Control;
use crate::methods::params::Params;
use crate::methods::rpc::{CallOutput, MethodResult, internal_error};

/// `Aulos.GetClusterStatus`: a request to all nodes, which is awaited without a lock.
pub(crate) fn get_status(context: &mut CallContext<'_>, _: &Params<'_>) -> MethodResult {
    let link = Arc::clone(link(context.control)?);
    let own = context.control.views().node(context.subjects);
    let request = link.request_status();
    Ok(CallOutput::later(async move {
        let reports = match request {
            Some(answer) => answer.await.unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(status_json(&link.state(), &own.document(), &reports))
    }))
}

fn link(control: &Control) -> Result<&Arc<dyn ClusterLink>, RpcError> {
    let message = "this server is not in a cluster; add the table `cluster` to its configuration";
    control.cluster.as_ref().ok_or_else(|| internal_error(message))
}

/// The result of `Aulos.GetClusterStatus`.
fn status_json(state: &ClusterState, own: &NodeDocument, reports: &[NodeReport]) -> Value {
    let is_own = |report: &&NodeReport| report.name == state.node;
    let others = reports
        .iter()
        .filter(is_own)
        .filter(|report| report.process != state.process || report.is_duplicate);
    let error = (others.count() > 0).then_some(SAME_NAME);
    let mut nodes = vec![node_json(&state.node, (true, true, 0), error, Some(own))];
    nodes.extend(reports.iter().filter(|report| !is_own(report)).map(report_json));
    nodes.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    json!({
        "site": state.site,
        "node": state.node,
        "connected": state.is_connected,
        "nodes": nodes,
    })
}

fn report_json(report: &NodeReport) -> Value {
    let (document, error) = match NodeDocument::parse(&report.document) {
        Ok(document) => (Some(document), None),
        Err(error) => (None, Some(error)),
    };
    let error = if report.is_duplicate { Some(SAME_NAME) } else { error };
    let age = report.age.as_millis().max(0);
    let name = clip_text(&report.name);
    node_json(&name, (false, report.is_reachable, age), error, document.as_ref())
}

fn node_json(
    name: &str,
    (is_self, is_reachable, age_ms): (bool, bool, i64),
    error: Option<&str>,
    document: Option<&NodeDocument>,
) -> Value {
    let head = json!({
        "name": name,
        "is_self": is_self,
        "reachable": is_reachable,
        "age_ms": age_ms,
        "error": error,
    });
    let body = serde_json::to_value(document).unwrap_or_default();
    match (head, body) {
        (Value::Object(mut head), Value::Object(body)) => {
            head.extend(body);
            Value::Object(head)
        }
        (head, _) => head,
    }
}

/// Answers requests of other nodes until their sender is gone.
pub async fn serve(control: Arc<Control>, mut requests: mpsc::Receiver<StatusRequest>) {
    while let Some(answer) = requests.recv().await {
        let view = control.views().node(&control.lock());
        // The asking task may have ended.
        answer.send(to_json_text(&view.document())).ok();
    }
}

const SAME_NAME: &str = "several servers have this name; set `node` in the table `cluster`";
