export * from './child_process.js'
