//! `Aulos.TestHook`.

use serde_json::json;

use crate::control::context::CallContext;
use crate::methods::params::Params;
use crate::methods::rpc::{MethodResult, internal_error};

/// `Aulos.TestHook`.
pub(crate) fn test(context: &mut CallContext<'_>, params: &Params<'_>) -> MethodResult {
    let hook = params.value("hook")?;
    let (name, id) = (context.control.hooks.test(hook))
        .ok_or_else(|| internal_error(format!("there is no hook {hook}")))?;
    Ok(json!({ "hook": name, "id": id }).into())
}
