//! How ready a source is kept while another one plays, and the line on which that is told.
//!
//! The switch knows who is needed; who opens sockets and starts programs is another thread, that of
//! a feeder or a decoder. Between them is one cell each way: what the station wishes, and what is
//! known of the other end. A feeder that never looks is simply always open.

use aulos_rt::{Publisher, Reader, latest};

/// How ready a source is kept while it is not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standby {
    /// Open, decoded and buffered: it can be on air within a quantum.
    #[default]
    Hot,
    /// Open, and what comes is thrown away: it can be on air when its buffer is filled.
    Warm,
    /// Closed: it can be on air when it has been opened.
    Cold,
}

/// What a station wishes of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Sound.
    #[default]
    Play,
    /// That it stays open, and hands nothing over.
    Stay,
    /// That it is closed, as far as it was we who opened it.
    Close,
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Nothing is wrong with it.
    #[default]
    Open,
    /// It could not be opened or broke, and is opened again after a pause.
    Broken,
}

/// The station's end and the feeder's, for a source that is not needed yet.
#[must_use]
pub fn gate(standby: Standby) -> (Gate, Keeper) {
    let last = standby.wish();
    let (wish, wished) = latest(last);
    let (told, link) = latest(Link::default());
    (Gate { wish, last, link }, Keeper { wished, told, last: Link::default() })
}

impl Standby {
    /// What is wished of a source that is not needed.
    #[must_use]
    pub const fn wish(self) -> Wish {
        match self {
            Self::Hot => Wish::Play,
            Self::Warm => Wish::Stay,
            Self::Cold => Wish::Close,
        }
    }
}

/// The station's end.
#[derive(Debug)]
pub struct Gate {
    wish: Publisher<Wish>,
    last: Wish,
    link: Reader<Link>,
}

impl Gate {
    /// Says what is wished from now on; true when that is something else than before.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn wish(&mut self, wish: Wish) -> bool {
        let differs = wish != self.last;
        if differs {
            self.last = wish;
            self.wish.publish(wish);
        }
        differs
    }

    /// What was told last.
    ///
    /// # Real-time
    /// Wait-free.
    pub fn link(&mut self) -> Link {
        *self.link.read()
    }
}

/// The end of whoever opens and closes.
#[derive(Debug)]
pub struct Keeper {
    wished: Reader<Wish>,
    told: Publisher<Link>,
    last: Link,
}

impl Keeper {
    /// What is wished now.
    pub fn wish(&mut self) -> Wish {
        *self.wished.read()
    }

    /// Tells of the other end.
    pub fn tell(&mut self, link: Link) {
        if link != self.last {
            self.last = link;
            self.told.publish(link);
        }
    }
}
