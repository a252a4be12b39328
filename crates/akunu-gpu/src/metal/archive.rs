//! Kernels that were made ready once are kept in a file (`MTLBinaryArchive`), so that the next start need not compile them again. It is
//! only a cache: whatever goes wrong with it costs time, and no more.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSError, NSString, NSURL};
use objc2_metal::{
    MTLBinaryArchive, MTLBinaryArchiveDescriptor, MTLComputePipelineDescriptor, MTLComputePipelineState,
    MTLDevice, MTLFunction, MTLPipelineOption,
};

use super::Shared;

/// Pipelines of one device and one set of sources.
pub(super) struct Archive {
    archive: Shared<dyn MTLBinaryArchive>,
    file: PathBuf,
    /// Whether pipelines were added since it was written.
    has_grown: AtomicBool,
}

impl Archive {
    /// What is kept for these sources on this device, or an empty archive; nothing where there is no folder for it.
    pub(super) fn open(device: &ProtocolObject<dyn MTLDevice>, source: &str) -> Option<Archive> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("AKUNU_CACHE")
            .or_else(|| set("HOME").map(|home| home.join("Library/Caches/akunu")))
            .filter(|folder| fs::create_dir_all(folder).is_ok())?;
        let file = folder.join(file_name(source, &device.name().to_string()));
        let descriptor = MTLBinaryArchiveDescriptor::new();
        let open = |kept: Option<&NSURL>| {
            descriptor.setUrl(kept);
            device.newBinaryArchiveWithDescriptor_error(&descriptor).ok()
        };
        let kept = if file.exists() { url(&file).and_then(|url| open(Some(&url))) } else { None };
        let archive = Shared(kept.or_else(|| open(None))?);
        Some(Archive { archive, file, has_grown: AtomicBool::new(false) })
    }

    /// A kernel made ready: from the archive, or compiled and added to it.
    pub(super) fn pipeline(
        &self,
        device: &ProtocolObject<dyn MTLDevice>,
        function: &ProtocolObject<dyn MTLFunction>,
    ) -> Result<Retained<ProtocolObject<dyn MTLComputePipelineState>>, Retained<NSError>> {
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(Some(function));
        descriptor.setBinaryArchives(Some(&NSArray::from_slice(&[&*self.archive.0])));
        let make = |options| {
            device.newComputePipelineStateWithDescriptor_options_reflection_error(&descriptor, options, None)
        };
        if let Ok(kept) = make(MTLPipelineOption::FailOnBinaryArchiveMiss) {
            return Ok(kept);
        }
        let made = make(MTLPipelineOption::empty())?;
        if self.archive.0.addComputePipelineFunctionsWithDescriptor_error(&descriptor).is_ok() {
            self.has_grown.store(true, Ordering::Relaxed);
        }
        Ok(made)
    }

    /// Writes what was added. Others may do the same, in this process too: each writes a file of its own, and the last one stays.
    pub(super) fn save(&self) {
        if !self.has_grown.swap(false, Ordering::Relaxed) {
            return;
        }
        static WRITTEN: AtomicU32 = AtomicU32::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let written = self.file.with_extension(format!("{}-{number}", std::process::id()));
        let is_written = url(&written).is_some_and(|url| self.archive.0.serializeToURL_error(&url).is_ok());
        if !is_written || fs::rename(&written, &self.file).is_err() {
            let _ = fs::remove_file(&written);
        }
    }
}

fn url(path: &Path) -> Option<Retained<NSURL>> {
    Some(NSURL::fileURLWithPath(&NSString::from_str(path.to_str()?)))
}

/// A name that changes with the sources and the device (FNV-1a). Archives of another system are found out by Metal itself.
fn file_name(source: &str, device: &str) -> String {
    let bytes = source.bytes().chain(device.bytes());
    let hash = bytes.fold(0xCBF2_9CE4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
    format!("kernels-{hash:016x}.metal-archive")
}
