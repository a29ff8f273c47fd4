import { validateBlock } from '../../common/domain/workflow-block.ts';
import { diffWorkflows } from '../../common/domain/workflow-diff.ts';
import type { BlockTools } from '../agents/proposer/proposer-inputs.ts';

/** The domain's own rules for blocks, as the proposer is given them. */
export const blockTools: BlockTools = {
  problems: (block) => validateBlock(block).map((problem) => problem.message),
  diff: (before, after, maxCharacters) => diffWorkflows({ before, after, limit: maxCharacters }),
};
