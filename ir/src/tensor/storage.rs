//! The memory of a tensor's elements, which clones share.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Elements in another order, such as the order in which a kernel reads them.
pub trait Layout: Any + Send + Sync {
    /// The elements in row-major order, in new memory.
    fn restore(&self) -> Bytes;
}

/// The bytes of a tensor.
#[derive(Clone)]
pub enum Storage {
    Fixed(Bytes),
    /// Bytes that another layout may replace, for all clones at once. So weights are in memory
    /// once, in the order in which they are read most.
    Replaceable(Arc<Replaceable>),
}

/// Bytes, or the layout that replaced them.
pub struct Replaceable {
    length: usize,
    contents: Mutex<Contents>,
}

enum Contents {
    Plain {
        bytes: Bytes,
        /// Whether a reader keeps them, so that they must not be replaced.
        pinned: bool,
    },
    Replaced {
        layout: Arc<dyn Layout>,
        sample: Vec<u8>,
        uniform: bool,
    },
}

/// The number of pieces that are hashed, and their length in bytes.
const SAMPLES: usize = 16;
const SAMPLE_BYTES: usize = 16;

impl Storage {
    pub fn replaceable(bytes: Bytes) -> Storage {
        let length = bytes.len();
        let contents = Mutex::new(Contents::Plain { bytes, pinned: false });
        Storage::Replaceable(Arc::new(Replaceable { length, contents }))
    }

    pub fn len(&self) -> usize {
        match self {
            Storage::Fixed(bytes) => bytes.len(),
            Storage::Replaceable(shared) => shared.length,
        }
    }

    /// The bytes, shared with all clones; if a layout replaced them, a restored copy.
    pub fn bytes(&self) -> Bytes {
        match self {
            Storage::Fixed(bytes) => bytes.clone(),
            Storage::Replaceable(shared) => {
                let layout = match &*shared.contents() {
                    Contents::Plain { bytes, .. } => return bytes.clone(),
                    Contents::Replaced { layout, .. } => layout.clone(),
                };
                layout.restore()
            }
        }
    }

    /// Passes the bytes to `read`; if a layout replaced them, a restored copy.
    pub fn read<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Storage::Fixed(bytes) => read(bytes),
            Storage::Replaceable(_) => read(&self.bytes()),
        }
    }

    /// The bytes, which no layout may replace any more.
    pub fn keep(&self) -> Bytes {
        let Storage::Replaceable(shared) = self else { return self.bytes() };
        let mut contents = shared.contents();
        let bytes = match &*contents {
            Contents::Plain { bytes, .. } => bytes.clone(),
            Contents::Replaced { layout, .. } => layout.restore(),
        };
        *contents = Contents::Plain { bytes: bytes.clone(), pinned: true };
        bytes
    }

    /// Frees the bytes: from now on the layout holds them. Does nothing if the bytes are fixed or
    /// kept, or if another layout holds them.
    pub fn replace(&self, layout: Arc<dyn Layout>, width: usize) {
        let Storage::Replaceable(shared) = self else { return };
        let mut contents = shared.contents();
        if let Contents::Plain { bytes, pinned: false } = &*contents {
            let (sample, uniform) = (sample(bytes), is_uniform(bytes, width));
            *contents = Contents::Replaced { layout, sample, uniform };
        }
    }

    /// The layout that replaced the bytes, if it is of type `L`.
    pub fn layout<L: Layout>(&self) -> Option<Arc<L>> {
        let Storage::Replaceable(shared) = self else { return None };
        match &*shared.contents() {
            Contents::Plain { .. } => None,
            Contents::Replaced { layout, .. } => {
                let layout: Arc<dyn Any + Send + Sync> = layout.clone();
                layout.downcast().ok()
            }
        }
    }

    /// Whether all elements, of `width` bytes, have the same bits; true if there are none.
    pub fn is_uniform(&self, width: usize) -> bool {
        if let Storage::Replaceable(shared) = self
            && let Contents::Replaced { uniform, .. } = &*shared.contents()
        {
            return *uniform;
        }
        self.read(|bytes| is_uniform(bytes, width))
    }

    /// A sample of the bytes; equal bytes have equal samples.
    fn sample(&self) -> Vec<u8> {
        if let Storage::Replaceable(shared) = self
            && let Contents::Replaced { sample, .. } = &*shared.contents()
        {
            return sample.clone();
        }
        self.read(sample)
    }
}

impl Replaceable {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        // After a panic the data is still consistent, as it is replaced in one step.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_uniform(bytes: &[u8], width: usize) -> bool {
    let width = width.min(bytes.len());
    bytes[width..] == bytes[..bytes.len() - width]
}

fn sample(bytes: &[u8]) -> Vec<u8> {
    match bytes.len() {
        few if few <= SAMPLES * SAMPLE_BYTES => bytes.to_vec(),
        many => {
            let at = |piece| (many - SAMPLE_BYTES) / (SAMPLES - 1) * piece;
            (0..SAMPLES)
                .flat_map(|piece| bytes[at(piece)..][..SAMPLE_BYTES].iter().copied())
                .collect()
        }
    }
}

impl PartialEq for Storage {
    fn eq(&self, other: &Storage) -> bool {
        if let (Storage::Replaceable(shared), Storage::Replaceable(other)) = (self, other)
            && Arc::ptr_eq(shared, other)
        {
            return true;
        }
        if self.len() != other.len() {
            return false;
        }
        let equal = |a: &[u8], b: &[u8]| a.as_ptr() == b.as_ptr() || a == b;
        match (self, other) {
            (Storage::Fixed(bytes), Storage::Fixed(other)) => equal(bytes, other),
            // Compares the samples first, as they need no restoring.
            _ => self.sample() == other.sample() && equal(&self.bytes(), &other.bytes()),
        }
    }
}

impl Eq for Storage {}

impl Hash for Storage {
    /// Hashes only a sample of the bytes, as hashing all weights would take long.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Storage::Fixed(bytes) if bytes.len() <= SAMPLES * SAMPLE_BYTES => bytes[..].hash(state),
            Storage::Fixed(_) | Storage::Replaceable(_) => self.sample().hash(state),
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
