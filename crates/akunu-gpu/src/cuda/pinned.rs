//! Memory of this machine that the device copies from and to by itself, without the driver's own copy in between.

use std::ptr::NonNull;
use std::sync::Arc;

use akunu_program::{Error, Result};

use super::driver::Handle;
use super::{Buffer, Device, Mark, NON_BLOCKING, WITHOUT_TIME};
use crate::upload::{Lane, Piece};

/// Pieces of a lane that are made or under way at once.
const RING: usize = 2;

/// Events that are waited for without keeping a core busy: others make the next pieces on it.
const SLEEPING: u32 = 1;

/// Memory that stays where it is.
pub(super) struct Pinned {
    device: Arc<Device>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory belongs to this value alone, and the driver's functions may be called from any thread.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Result<Pinned> {
        let (bytes, mut start) = (bytes.max(1), std::ptr::null_mut());
        // SAFETY: the driver writes an address.
        unsafe { device.here()?.pin(&raw mut start, bytes, 0)? };
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::Device("CUDA: no memory".to_owned()))?;
        // SAFETY: so many bytes were allocated; from here on they are initialised.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { device: Arc::clone(device), start, bytes })
    }

    /// The bytes, which no copy may be under way for.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory is this value's own and initialised.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this value; whoever began a copy has waited for it.
        let _ = self.device.here().and_then(|driver| unsafe { driver.unpin(self.start.as_ptr().cast()) });
    }
}

/// A lane of pinned memory and a stream of its own.
pub(super) struct PinnedLane<'a> {
    buffer: &'a Buffer,
    stream: Handle,
    ring: Vec<Slot>,
    /// The slot that is being filled.
    turn: usize,
}

struct Slot {
    memory: Pinned,
    /// When its copies are done; none before the first.
    sent: Option<Mark>,
}

impl<'a> PinnedLane<'a> {
    /// A lane for pieces of at most so many bytes.
    pub(super) fn new(buffer: &'a Buffer, largest: usize) -> Result<PinnedLane<'a>> {
        let (device, mut stream) = (&buffer.device, std::ptr::null_mut());
        let slot = |_| Ok(Slot { memory: Pinned::new(device, largest)?, sent: None });
        let ring = (0..RING).map(slot).collect::<Result<_>>()?;
        let driver = device.here()?;
        // SAFETY: the driver writes a handle. The buffer may still be filled with zeros.
        unsafe {
            driver.stream_wait(device.stream)?;
            driver.stream_create(&raw mut stream, NON_BLOCKING)?;
        }
        Ok(PinnedLane { buffer, stream, ring, turn: 0 })
    }
}

impl PinnedLane<'_> {
    /// Begins the copies of a piece.
    fn copy(&mut self, piece: &Piece) -> Result<()> {
        let (device, slot) = (&self.buffer.device, &mut self.ring[self.turn]);
        let (driver, mut rest) = (device.here()?, &*slot.memory.bytes_mut());
        for (at, bytes) in piece.ranges.into_iter().filter(|(_, bytes)| *bytes > 0) {
            let address = self.buffer.at(at, bytes)?;
            let larger = || Error::Device("a piece is larger than its memory".to_owned());
            let (range, after) = rest.split_at_checked(bytes).ok_or_else(larger)?;
            // SAFETY: in bounds on both sides. The memory is left alone until the event below was waited for, and freed after
            // the stream was.
            unsafe { driver.to_device(address, range.as_ptr().cast(), bytes, self.stream)? };
            rest = after;
        }
        slot.sent = Some(device.mark(self.stream, WITHOUT_TIME | SLEEPING)?);
        Ok(())
    }
}

impl Lane for PinnedLane<'_> {
    fn room(&mut self, bytes: usize) -> Result<&mut [u8]> {
        self.turn = (self.turn + 1) % RING;
        let slot = &mut self.ring[self.turn];
        if let Some(sent) = &slot.sent {
            // SAFETY: the event lives as long as its mark.
            unsafe { self.buffer.device.here()?.event_wait(sent.event)? };
        }
        slot.sent = None;
        let all = slot.memory.bytes;
        let room = slot.memory.bytes_mut().get_mut(..bytes);
        room.ok_or_else(|| Error::Device(format!("a piece of {bytes} bytes in memory of {all}")))
    }

    fn send(&mut self, piece: &Piece) -> Result<()> {
        let copied = self.copy(piece);
        if copied.is_err() {
            // What began before the error reads memory that the next piece is written to.
            let _ = self.finish();
        }
        copied
    }

    fn finish(&mut self) -> Result<()> {
        // SAFETY: the stream lives as long as the lane.
        unsafe { self.buffer.device.here()?.stream_wait(self.stream) }
    }
}

impl Drop for PinnedLane<'_> {
    fn drop(&mut self) {
        // SAFETY: the stream was made with this lane; what it copies from is freed after this.
        let _ = self.buffer.device.here().and_then(|driver| unsafe {
            let waited = driver.stream_wait(self.stream);
            driver.stream_destroy(self.stream).and(waited)
        });
    }
}
