import { locatePath } from '../../workspace/locate.ts';
import { hashExpected } from '../../workspace/read-file.ts';
import type { CheckedWorkspace, FoundProblem, IntegrityCheck, ProtectedFile } from '../integrity-check.ts';

/** Files the harness placed must be what they were: data edited to fit a result is the result's author, not its judge. */
export const inputsCheck: IntegrityCheck = {
  id: 'inputs',
  run: async ({ folder, inputs }) => {
    const found: FoundProblem[] = [];
    for (const input of inputs) found.push(...(await compare(folder, input)));
    return found;
  },
};

async function compare(folder: CheckedWorkspace['folder'], input: ProtectedFile): Promise<FoundProblem[]> {
  const { path } = input;
  const finding = (what: string, message: string, details: FoundProblem['details'] = {}): FoundProblem[] => [
    { checkId: `inputs.${what}`, severity: 'serious', path, message, details: { expected: input, ...details } },
  ];
  const located = await locatePath(folder, path);
  if (located === 'missing') return finding('deleted', `The task's file ${path} was deleted or moved.`);
  const now = located === 'not-a-file' ? null : await hashExpected(located.raw, input.bytes);
  if (now === null)
    return finding('replaced', `The task's file ${path} was replaced by something that is no readable file.`);
  if (now.sha256 === input.sha256) return [];
  const how =
    now.bytes === input.bytes
      ? `same size, sha256 ${now.sha256?.slice(0, 12)} instead of ${input.sha256.slice(0, 12)}`
      : `${now.bytes} bytes instead of ${input.bytes}`;
  return finding('changed', `The task's file ${path} was changed (${how}).`, { found: now });
}
