//! The ids of what the parameters of a call name.
//!
//! The parameters are replaced before the method runs, as their types in its row say, so that a
//! method sees ids only and none can forget to accept a name.

use std::borrow::Cow;

use aulos_proto::snap::control::RpcError;
use serde_json::Value;

use crate::control::state::Subjects;
use crate::methods::params::{Param, ParamPolicy, ParamType};
use crate::methods::rpc::internal_error;
use crate::names::{NameMatch, Named, NamedKind, resolve};

/// The values of a call with ids in place of names.
///
/// A method of Snapcast is given a text that names nothing as it is, and answers as snapserver
/// does. It takes whole names only.
///
/// # Errors
/// A text that names nothing, or several.
pub(crate) fn with_ids<'v>(
    declared: &[Param],
    values: &'v Value,
    policy: ParamPolicy,
    subjects: &Subjects,
) -> Result<Cow<'v, Value>, RpcError> {
    IdResolver { subjects, is_strict: policy != ParamPolicy::Snapcast, lookups: MAX_LOOKUPS }
        .values(declared, values)
}

struct IdResolver<'a> {
    subjects: &'a Subjects,
    is_strict: bool,
    /// How many more texts may be compared with all names.
    lookups: usize,
}

/// Limit of texts in one call that are no ids: each is compared with every name under the lock of
/// the state, and a list may have a hundred thousand.
const MAX_LOOKUPS: usize = 64;

impl IdResolver<'_> {
    fn values<'v>(
        &mut self,
        declared: &[Param],
        values: &'v Value,
    ) -> Result<Cow<'v, Value>, RpcError> {
        let mut replaced = Cow::Borrowed(values);
        for param in declared {
            let Some(value) = values.get(param.name) else { continue };
            if let Some(ids) = self.value(param, value)? {
                replaced.to_mut()[param.name] = ids;
            }
        }
        Ok(replaced)
    }

    /// What a value is replaced by; `None` if it stays.
    fn value(&mut self, param: &Param, value: &Value) -> Result<Option<Value>, RpcError> {
        match (param.kind, value) {
            (ParamType::Object(members, _), value) => Ok(match self.values(members, value)? {
                Cow::Owned(replaced) => Some(replaced),
                Cow::Borrowed(_) => None,
            }),
            (ParamType::Id(kind) | ParamType::IdOrIds(kind), Value::String(text)) => {
                Ok(self.id(param, kind, text)?.map(Value::String))
            }
            (ParamType::Ids(kind) | ParamType::IdOrIds(kind), Value::Array(list)) => {
                let mut replaced = None;
                for (index, text) in list.iter().enumerate() {
                    let Some(text) = text.as_str() else { continue };
                    if let Some(id) = self.id(param, kind, text)? {
                        replaced.get_or_insert_with(|| list.clone())[index] = id.into();
                    }
                }
                Ok(replaced.map(Value::Array))
            }
            _ => Ok(None),
        }
    }

    /// The id of what a text names; `None` if the text is one, or stays.
    fn id(
        &mut self,
        param: &Param,
        kind: NamedKind,
        text: &str,
    ) -> Result<Option<String>, RpcError> {
        if self.is_id(kind, text) {
            return Ok(None);
        }
        let Some(left) = self.lookups.checked_sub(1) else {
            let refusal = format!("`{}`: give ids, or at most {MAX_LOOKUPS} names", param.name);
            return if self.is_strict { Err(RpcError::invalid_params(&refusal)) } else { Ok(None) };
        };
        self.lookups = left;
        let extent = if self.is_strict { NameMatch::Prefix } else { NameMatch::Whole };
        match resolve(kind, text, &self.names(kind), extent) {
            Ok(id) => Ok(Some(id.to_owned())),
            Err(error) if !self.is_strict && !error.is_ambiguous() => Ok(None),
            Err(error) if kind == NamedKind::Station => Err(error.into()),
            Err(error) => Err(internal_error(format!("`{}`: {error}", param.name))),
        }
    }

    fn is_id(&self, kind: NamedKind, text: &str) -> bool {
        let Subjects { clients, stations, .. } = self.subjects;
        match kind {
            NamedKind::Client => clients.registry.table.client(text).is_some(),
            NamedKind::Group => clients.registry.table.group(text).is_some(),
            NamedKind::Station => stations.find(text).is_some(),
        }
    }

    fn names(&self, kind: NamedKind) -> Vec<Named<'_>> {
        let Subjects { clients, stations, .. } = self.subjects;
        match kind {
            NamedKind::Client => clients.registry.table.client_names(),
            NamedKind::Group => clients.registry.table.group_names(),
            NamedKind::Station => stations.names(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods;

    /// A parameter of a name that means a client, a group or a station accepts names too.
    #[test]
    fn every_parameter_that_is_an_id_has_the_type_of_one() {
        // A filter may name a station that is gone, a removal must not reach another one, and a
        // player that waits for its approval or has been forgotten is no client.
        const WHOLE: [(&str, &str); 5] = [
            ("Aulos.GetEvents", "station"),
            ("Aulos.AcknowledgeEvents", "station"),
            ("Stream.RemoveStream", "id"),
            ("Aulos.ApproveSendspinClient", "client"),
            ("Aulos.ForgetSendspinClient", "client"),
        ];
        fn check(method: &str, param: &Param) -> usize {
            if let ParamType::Object(members, _) = param.kind {
                return members.iter().map(|member| check(method, member)).sum();
            }
            let is_snapcast = ["Client.", "Group.", "Stream.", "Server.DeleteClient"];
            let is_id = match param.name {
                "client" | "clients" | "group" | "groups" | "station" | "stations"
                | "stream_id" => true,
                "id" => is_snapcast.iter().any(|subject| method.starts_with(subject)),
                _ => false,
            };
            let has_type =
                matches!(param.kind, ParamType::Id(_) | ParamType::Ids(_) | ParamType::IdOrIds(_));
            let expected = is_id && !WHOLE.contains(&(method, param.name));
            assert_eq!(has_type, expected, "{method} {}", param.name);
            usize::from(has_type)
        }
        let params =
            methods::all().flat_map(|method| method.params.iter().map(move |it| (method, it)));
        let count: usize = params.map(|(method, param)| check(method.name, param)).sum();
        assert!(count > 40, "{count}");
    }
}
