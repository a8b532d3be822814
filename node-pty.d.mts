export * from './node-pty.js'
