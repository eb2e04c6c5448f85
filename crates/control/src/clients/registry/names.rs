//! Clients and groups as texts may name them.

use super::client::Client;
use super::table::ClientTable;
use crate::names::{Named, client_name, group_name};

impl Client {
    /// Its name as people see it: the one that it was given, or that of its machine.
    pub(crate) fn shown_name(&self) -> &str {
        client_name(&self.name, &self.host_name)
    }
}

impl ClientTable {
    /// Every client.
    pub(crate) fn client_names(&self) -> Vec<Named<'_>> {
        self.clients().map(|client| Named::new(&client.id, client.shown_name())).collect()
    }

    /// Every group.
    pub(crate) fn group_names(&self) -> Vec<Named<'_>> {
        let names = self.groups().map(|group| {
            let members = self.members(&group.id).map(Client::shown_name);
            Named::new(&group.id, group_name(&group.name, members))
        });
        names.collect()
    }
}
