import { sha256File } from '../../node/file-hash.ts';
import { walkWorkspace } from '../workspace/walk.ts';

export interface WorkspaceManifest {
  readonly files: readonly { readonly path: string; readonly bytes: number; readonly sha256: string }[];
  /** links, devices and what could not be read: listed, never opened */
  readonly others: readonly { readonly path: string; readonly type: string }[];
  readonly complete: boolean;
  readonly bytes: number;
}

/** What an attempt left behind, by content. Nothing of the attempt may be running any more. */
export async function workspaceManifest(workspace: string): Promise<WorkspaceManifest> {
  const walk = await walkWorkspace(workspace);
  const files: { path: string; bytes: number; sha256: string }[] = [];
  const others: { path: string; type: string }[] = [];
  for (const entry of walk.entries) {
    if (entry.type === 'file')
      files.push({ path: entry.path, bytes: entry.bytes ?? 0, sha256: await sha256File(entry.raw) });
    else others.push({ path: entry.path, type: entry.type });
  }
  return { files, others, complete: walk.complete, bytes: files.reduce((sum, file) => sum + file.bytes, 0) };
}
