//! Calls about the other nodes of a cluster, and their calls.

use std::sync::Arc;

use aulos_core::TokenBucket;
use aulos_proto::snap::control::{Reply, RequestId, RpcError};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::access::Role;
use crate::clients::registry::{clip_text, to_json_text};
use crate::cluster::node_document::NodeDocument;
use crate::cluster::{ClusterLink, ClusterRequest, ClusterState, MAX_CALL, NodeReport};
use crate::control::context::CallContext;
use crate::control::counters::count;
use crate::control::state::Control;
use crate::methods::method;
use crate::methods::params::{Params, shorten};
use crate::methods::roles::Caller;
use crate::methods::rpc::{CallOutput, MethodResult, internal_error, method_not_found};

/// The methods that a node executes for others: what a controller of clients needs, and nothing
/// that touches files, sources, users or the configuration.
pub(crate) const NODE_METHODS: &[&str] = &[
    "Client.SetVolume",
    "Client.SetLatency",
    "Client.SetName",
    "Group.SetMute",
    "Group.SetStream",
    "Group.SetName",
    "Group.SetClients",
    "Aulos.SetVolume",
];

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

/// `Aulos.CallNode`: the role of the caller is checked here, where it has logged in. The other node
/// executes [`NODE_METHODS`] only.
pub(crate) fn call_node(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let link = Arc::clone(link(context.control)?);
    let (node, name) = (params.text("node")?, params.text("method")?);
    let values = params.value("params")?;
    let method = Control::node_method(name).ok_or_else(method_not_found)?;
    method::authorize(context.caller, method)?;
    if node == link.state().node {
        return method.call(context, values);
    }
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": name, "params": values });
    let request = request.to_string();
    if request.len() > MAX_CALL {
        return Err(internal_error(format!("the call has more than {MAX_CALL} bytes")));
    }
    let answer = link.call(node, request);
    let node = node.to_owned();
    Ok(CallOutput::later(async move {
        let failed = |why: &str| internal_error(format!("node `{}`: {why}", shorten(&node)));
        let Some(answer) = answer else { return Err(failed("too many calls are under way")) };
        match answer.await {
            Ok(Ok(bytes)) => {
                read_answer(&bytes).unwrap_or_else(|| Err(failed("its answer cannot be read")))
            }
            Ok(Err(error)) => Err(failed(&error.to_string())),
            Err(_) => Err(failed("this server is stopping")),
        }
    }))
}

fn link(control: &Control) -> Result<&Arc<dyn ClusterLink>, RpcError> {
    let message = "this server is not in a cluster; add the table `cluster` to its configuration";
    control.cluster.as_ref().ok_or_else(|| internal_error(message))
}

/// The result of a JSON-RPC answer; `None` if it is none.
fn read_answer(bytes: &[u8]) -> Option<Result<Value, RpcError>> {
    let mut answer: Map<String, Value> = serde_json::from_slice(bytes).ok()?;
    if let Some(result) = answer.remove("result") {
        return Some(Ok(result));
    }
    let error = answer.get("error")?;
    let message = error["message"].as_str()?;
    let data = error["data"].as_str().map(|data| Value::String(clip_text(data)));
    let text = data.unwrap_or_else(|| Value::String(clip_text(message)));
    // The code may be any number, and is one of this server's own for its controllers.
    Some(Err(RpcError { data: Some(text), ..internal_error("") }))
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
pub async fn serve(control: Arc<Control>, mut requests: mpsc::Receiver<ClusterRequest>) {
    let mut budget = TokenBucket::new(NODE_CALLS, NODE_CALL_INTERVAL, aulos_core::Instant::ZERO);
    while let Some(request) = requests.recv().await {
        match request {
            ClusterRequest::Status(answer) => {
                let view = control.views().node(&control.lock());
                // The asking task may have ended.
                answer.send(to_json_text(&view.document())).ok();
            }
            ClusterRequest::Call(call, answer) => {
                let text = if budget.try_take(control.clock.local()) {
                    execute_for_node(&control, &call).await
                } else {
                    count(&control.counters.node_calls_refused);
                    refusal("too many calls; try again in a second")
                };
                answer.send(text).ok();
            }
        }
    }
}

/// Executes a call of another node, with the role `control`: that node has checked its caller, and
/// NATS the node.
async fn execute_for_node(control: &Control, call: &[u8]) -> String {
    let parsed = serde_json::from_slice::<Map<String, Value>>(call).ok();
    let name = parsed.as_ref().and_then(|call| call.get("method")?.as_str());
    if call.len() > MAX_CALL || name.and_then(Control::node_method).is_none() {
        count(&control.counters.node_calls_refused);
        return refusal("the call is not one that a node executes for others");
    }
    count(&control.counters.node_calls);
    let mut caller = Caller::new(Caller::internal().from, Role::Control);
    let answer = control.request(&mut caller, call).await;
    answer.map_or_else(|| refusal("the call has no id"), |answer| answer.into_parts().0)
}

fn refusal(why: &str) -> String {
    Reply { id: RequestId::Null, outcome: Err(internal_error(why)) }.to_json()
}

const SAME_NAME: &str = "several servers have this name; set `node` in the table `cluster`";

/// Burst of calls of other nodes, and the interval at which one more is accepted: two volume
/// sliders that are moved all the time.
const NODE_CALLS: u32 = 200;
const NODE_CALL_INTERVAL: aulos_core::Span = aulos_core::Span::from_millis(8);
