import type { Logger } from '../../common/base/logger.ts';
import type { Store } from '../store/store.ts';

/** What every group of handlers is made from. */
export interface HandlerParts {
  readonly store: Store;
  readonly logger: Logger;
  readonly version: string;
}
