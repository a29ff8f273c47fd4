import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { openStore, type Store } from '../store/store.ts';
import { registerScriptedModel, writeTaskLibrary } from './scripted-world.ts';

export interface LabFolder {
  /** the data folder */
  readonly folder: string;
  /** of tasks one, two, three */
  readonly library: string;
  /** Opens the store of the data folder; no engine may be running on it. */
  withStore<T>(use: (store: Store) => T): T;
}

/** For a whole test file: every test has a data folder with the scripted model registered, and a task library. */
export function useLabFolder(): LabFolder {
  let root = '';
  const lab: LabFolder = {
    get folder() {
      return join(root, 'data');
    },
    get library() {
      return join(root, 'tasks');
    },
    withStore(use) {
      const store = openStore(lab.folder);
      try {
        return use(store);
      } finally {
        store.close();
      }
    },
  };
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'mass-lab-'));
    writeTaskLibrary(lab.library);
    lab.withStore(registerScriptedModel);
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));
  return lab;
}
