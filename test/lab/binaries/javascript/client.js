#!/usr/bin/env node
// Uses the JavaScript client as its examples do, with the kubeconfig of KUBECONFIG.
//
// Usage: client.js version|list|watch|informer|logs|exec|forward|create|patch|can-i|delete NAMESPACE [NAME] [ARGUMENT...]
import { PassThrough } from 'node:stream';
import * as k8s from '@kubernetes/client-node';

const [what, namespace, name, ...rest] = process.argv.slice(2);
const kc = new k8s.KubeConfig();
kc.loadFromDefault();
const core = kc.makeApiClient(k8s.CoreV1Api);
const pods = `/api/v1/namespaces/${namespace}/pods`;

// printing returns a stream that prints what it is given.
function printing() {
  const stream = new PassThrough();
  stream.on('data', (chunk) => process.stdout.write(chunk));
  return stream;
}

const commands = {
  async version() {
    console.log('server', (await kc.makeApiClient(k8s.VersionApi).getCode()).gitVersion);
  },
  async list() {
    for (const pod of (await core.listNamespacedPod({ namespace })).items) console.log(pod.metadata.name, pod.status.phase);
  },
  // watch prints the first events and ends.
  watch() {
    return new Promise((resolve, reject) => {
      new k8s.Watch(kc).watch(pods, {}, (type, pod) => {
        console.log(type, pod.metadata.name);
        resolve();
      }, (err) => (err ? reject(err) : resolve())).catch(reject);
    });
  },
  async informer() {
    const informer = k8s.makeInformer(kc, pods, () => core.listNamespacedPod({ namespace }));
    const added = new Promise((resolve, reject) => {
      informer.on('add', (pod) => { console.log('added', pod.metadata.name); resolve(); });
      informer.on('error', reject);
    });
    await informer.start();
    await added;
    await informer.stop();
  },
  async logs() {
    const out = printing();
    await new k8s.Log(kc).log(namespace, name, 'web', out, { tailLines: 1 });
    await new Promise((resolve) => { out.on('end', resolve); });
  },
  exec() {
    return new Promise((resolve, reject) => {
      new k8s.Exec(kc).exec(namespace, name, 'web', rest, printing(), process.stderr, null, false, (status) => {
        console.log('exec ended:', status.status);
        resolve();
      }).catch(reject);
    });
  },
  // forward asks the program behind a port who it is.
  forward() {
    return new Promise((resolve, reject) => {
      const input = new PassThrough(), output = new PassThrough();
      output.on('data', (chunk) => { process.stdout.write(chunk); if (/hello|cluster/.test(String(chunk))) resolve(); });
      new k8s.PortForward(kc).portForward(namespace, name, [Number(rest[0])], output, process.stderr, input)
        .then(() => input.write('GET / HTTP/1.0\r\n\r\n')).catch(reject);
    });
  },
  async create() {
    const made = await k8s.KubernetesObjectApi.makeApiClient(kc).create({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data: { from: 'javascript' } });
    console.log('created', made.metadata.name);
  },
  async patch() {
    const patched = await core.patchNamespacedConfigMap({ namespace, name, body: { data: { from: rest[0] } } },
      k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
    console.log('data', patched.data.from);
  },
  async 'can-i'() {
    const review = await kc.makeApiClient(k8s.AuthorizationV1Api).createSelfSubjectAccessReview({
      body: { spec: { resourceAttributes: { namespace, verb: 'list', resource: 'pods' } } } });
    console.log('allowed', review.status.allowed);
  },
  async delete() {
    await core.deleteNamespacedConfigMap({ namespace, name });
    console.log('deleted', name);
  },
};

commands[what]().then(() => process.exit(0), (err) => {
  console.error('Error:', err.body ?? err);
  process.exit(1);
});
