import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { sha256 } from '../../node/hashing.ts';
import { workspaceManifest } from './workspace-manifest.ts';

it('lists files by content, whatever bytes their names have, and never opens links', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'mass-manifest-'));
  try {
    writeFileSync(join(folder, 'report.md'), 'hello');
    writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), Buffer.from([0x66, 0xff, 0x6f])]), 'odd name');
    symlinkSync('/etc/passwd', join(folder, 'link'));
    const manifest = await workspaceManifest(folder);
    expect(manifest.files.map((file) => file.sha256).sort()).toEqual([sha256('hello'), sha256('odd name')].sort());
    expect(manifest.others).toEqual([{ path: 'link', type: 'symlink' }]);
    expect(manifest.bytes).toBe(13);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
