import { lstat, open } from 'node:fs/promises';

/** fsync of a file or, where the system can, of a folder after a rename in it. */
export async function syncPath(path: string): Promise<void> {
  if (process.platform === 'win32' && (await lstat(path)).isDirectory()) return;
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}
