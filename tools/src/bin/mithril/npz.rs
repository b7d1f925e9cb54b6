//! Writes NumPy's archive of arrays: an uncompressed zip file with one `.npy` per array.

use mithril_ir::dtype::DType;
use mithril_ir::tensor::Tensor;

/// The bytes of an `.npz` with these arrays. The format is that of NumPy's `numpy.lib.format`,
/// version 1.0, in a zip archive (PKWARE APPNOTE 6.3).
pub fn archive(arrays: &[(String, Tensor)]) -> Vec<u8> {
    let (mut files, mut directory) = (Vec::new(), Vec::new());
    for (name, tensor) in arrays {
        let name = format!("{name}.npy");
        let body = npy(tensor);
        let offset = files.len() as u32;
        let entry = entry(&body, name.len());
        files.extend(b"PK\x03\x04");
        files.extend(&entry);
        files.extend(name.as_bytes());
        files.extend(&body);
        // The central directory repeats the entry, between the version that made it and its offset.
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&entry);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, length, count) = (files.len() as u32, directory.len() as u32, arrays.len() as u16);
    files.extend(directory);
    files.extend(b"PK\x05\x06\0\0\0\0");
    files.extend(count.to_le_bytes());
    files.extend(count.to_le_bytes());
    files.extend(length.to_le_bytes());
    files.extend(start.to_le_bytes());
    files.extend([0; 2]);
    files
}

/// The fields that both headers of a zip entry share: version, flags, method, time, checksum, sizes
/// and the length of the name.
fn entry(body: &[u8], name: usize) -> Vec<u8> {
    let size = (body.len() as u32).to_le_bytes();
    let mut entry = vec![0x14, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
    entry.extend(checksum(body).to_le_bytes());
    entry.extend(size);
    entry.extend(size);
    entry.extend((name as u16).to_le_bytes());
    entry.extend([0; 2]);
    entry
}

/// The CRC-32 of zip (polynomial 0x04c11db7, reflected).
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8)
            .fold(crc ^ u32::from(*byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    };
    !bytes.iter().fold(!0, step)
}

fn npy(tensor: &Tensor) -> Vec<u8> {
    let dims: String = tensor.shape().iter().map(|d| format!("{d}, ")).collect();
    let descr = descr(tensor.dtype());
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    // Magic, version, length and header together are a multiple of 64 bytes and end in a newline.
    let padding = 63 - (10 + header.len()) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend_from_slice(&tensor.bytes());
    bytes
}

/// NumPy's name of the dtype; raw bytes (`V`) where NumPy does not have this dtype.
fn descr(dtype: DType) -> String {
    let kind = match dtype {
        DType::Bool => return "|b1".to_string(),
        DType::F64 | DType::F32 | DType::F16 => 'f',
        _ if dtype.is_float() || dtype.is_storage_only() => return format!("|V{}", dtype.bytes()),
        _ if dtype.is_unsigned_int() => 'u',
        _ => 'i',
    };
    format!("<{kind}{}", dtype.bytes())
}
