const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/** Bytes of a file that `pngSize` needs. */
export const PNG_HEADER_BYTES = 24;

/** Pixels of a PNG from its first 24 bytes (signature, IHDR length and tag, width, height); null when it is none. */
export function pngSize(header: Buffer): { width: number; height: number } | null {
  if (header.length < PNG_HEADER_BYTES || !header.subarray(0, 8).equals(signature)) return null;
  if (header.toString('latin1', 12, 16) !== 'IHDR') return null;
  const width = header.readUInt32BE(16);
  const height = header.readUInt32BE(20);
  return width > 0 && height > 0 && width < 2 ** 31 && height < 2 ** 31 ? { width, height } : null;
}
