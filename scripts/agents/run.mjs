// `npm run test:agents`: the agents that bots run, owned for real. They are fetched into target/agents, once: 420 MB for all of them, 1.1 GB
// unpacked. Too much for CI, so it is done when somebody asks for it; one alone with `npm run test:agents -- gemini`.
import { fetchPackage } from '../fetch.mjs'
import { root, run } from '../tools.mjs'
import { agents } from './list.mjs'

if (process.platform !== 'linux') {
  console.log('agents are left out: they are fetched for Linux, whose /proc is looked at, too')
  process.exit()
}

const asked = process.argv.slice(2)
const unknown = asked.filter((name) => !agents.some((agent) => agent.name === name))
if (unknown.length > 0) {
  console.error(`there is no ${unknown.join(', ')}, but ${agents.map(({ name }) => name).join(', ')}`)
  process.exit(1)
}

const wanted = agents.filter(({ name }) => asked.length === 0 || asked.includes(name))
for (const { name, spec, place } of wanted) {
  const why = fetchPackage(spec, place)
  if (why) console.log(`${name} is left out: ${why}`)
}
run(process.execPath, ['--test', '--test-reporter=spec', 'scripts/agents/agents.test.mjs'], {
  env: { ...process.env, AGENTS: wanted.map(({ name }) => name).join() },
  cwd: root,
})
