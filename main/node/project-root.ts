import { fileURLToPath } from 'node:url';

/** Absolute path of the project (or packaged app) root: where resources/ and native/ lie. */
export const projectRoot = fileURLToPath(new URL('../../', import.meta.url));
export const resourcePath = (relative: string): string =>
  fileURLToPath(new URL(`../../resources/${relative}`, import.meta.url));
