/**
 * The import layers of docs/architecture.md, enforced. A rule names who may not be imported and why.
 * One folder, one runtime: a violation fails `npm run lint`.
 */
const layer = (name, from, notTo, comment, extra = {}) => ({
  name,
  comment,
  severity: 'error',
  from: { path: from, pathNot: '\\.test\\.ts$', ...extra },
  to: notTo,
});
module.exports = {
  forbidden: [
    layer(
      'no-circular',
      '^main',
      { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
      'Cycles hide who owns what.',
    ),
    layer(
      'common-is-plain',
      '^main/common',
      { pathNot: '^(main/common|node_modules/zod)' },
      'common/ runs in every process: no node, dom or electron.',
    ),
    layer('base-imports-nothing', '^main/common/base', { pathNot: '^main/common/base' }, 'base/ is the bottom layer.'),
    layer(
      'domain-imports-base',
      '^main/common/domain',
      { path: '^main/common/protocol' },
      'domain/ does not know the wire.',
    ),
    layer(
      'node-imports-common',
      '^main/node',
      { path: '^main/(engine|inference|client|cli|electron)/' },
      'node/ holds shared helpers.',
    ),
    layer(
      'client-is-thin',
      '^main/client',
      { path: '^main/(engine|inference|cli|electron)/' },
      'Clients speak the protocol only.',
    ),
    layer(
      'cli-uses-client',
      '^main/cli',
      { path: '^main/(engine|inference|electron)/' },
      'The CLI reaches the engine through the client.',
    ),
    layer(
      'engine-not-up',
      '^main/engine',
      { path: '^main/(cli|client|inference|electron)/' },
      'The engine reaches inference over its protocol.',
    ),
    layer(
      'inference-alone',
      '^main/inference',
      { path: '^main/(engine|client|cli|electron)/' },
      'Inference is a process of its own.',
    ),
    layer(
      'sqlite-in-store',
      '^main',
      { path: '^node_modules/better-sqlite3' },
      'store/ is the only importer of better-sqlite3.',
      { path: '^main', pathNot: ['^main/engine/store', '\\.test\\.ts$'] },
    ),
    layer(
      'llama-in-inference',
      '^main',
      { path: '^node_modules/node-llama-cpp' },
      'inference/ is the only importer of node-llama-cpp.',
      { path: '^main', pathNot: ['^main/inference', '\\.test\\.ts$'] },
    ),
    layer(
      'runner-knows-stages-by-interface',
      '^main/engine/runner',
      { path: '^main/engine/(stages|agents|sandbox|integrity|trainer)/' },
      'runner/ knows the Stage interface only.',
    ),
    layer(
      'agents-have-no-store',
      '^main/engine/agents',
      { path: '^main/engine/(store|runner|stages|server)/' },
      'agents/ speak HTTP to an endpoint.',
    ),
    layer(
      'integrity-is-deterministic',
      '^main/engine/integrity',
      { path: '^main/engine/(agents|store|runner|stages|server|endpoints)/' },
      'integrity/ makes no model calls.',
    ),
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    parser: 'swc',
    enhancedResolveOptions: {
      extensions: ['.ts', '.mjs', '.js', '.json'],
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'types'],
    },
  },
};
