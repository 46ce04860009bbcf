"""A server on loopback that serves files, and serves them badly where a test says so. Python's standard library alone."""
import hashlib
import http.server
import json
import ssl
import struct
import threading
import time


def gguf(n_floats=50_000, seed=1):
    """A GGUF file of one tensor; its bytes differ by seed."""
    def string(text):
        return struct.pack('<Q', len(text)) + text.encode()

    head = b'GGUF' + struct.pack('<IQQ', 3, 1, 1)
    head += string('general.architecture') + struct.pack('<I', 8) + string('llama')
    head += string('t') + struct.pack('<IQIQ', 1, n_floats, 0, 0)
    head += b'\0' * (-len(head) % 32)
    data = hashlib.shake_256(bytes([seed])).digest(n_floats * 4)
    return head + data


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Reply:
    """How one request is answered. cut: so many bytes of the body, then the connection ends; stall: then silence for so many seconds; at_once: more
    requests than this at a time are answered 503; trickle: (at, n), behind so many bytes n times 100 bytes, each after a quarter of a second."""

    def __init__(self, body=b'', status=200, headers=None, cut=None, stall=0, ranges=True, etag=None, rate=None, length=None, close=False, at_once=None,
                 trickle=None):
        self.at_once, self.trickle = at_once, trickle
        self.body, self.status, self.headers = body, status, headers or {}
        self.cut, self.stall, self.ranges, self.etag, self.rate = cut, stall, ranges, etag, rate
        self.length, self.close = length, close  # length: announced whatever there is; -1: none, chunked


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def do_GET(self):
        with self.server.lock:
            self.server.requests.append((time.monotonic(), self.path, dict(self.headers)))
            replies = self.server.routes.get(self.path.split('?')[0])
            reply = Reply(status=404) if replies is None else replies.pop(0) if len(replies) > 1 else replies[0]
        if reply.close:
            self.close_connection = True
            return
        with self.server.lock:
            self.server.n_now += 1
            self.server.n_at_once = max(self.server.n_at_once, self.server.n_now)
            if reply.at_once and self.server.n_now > reply.at_once:
                reply = Reply(status=503)
        try:
            self.answer(reply)
        finally:
            with self.server.lock:
                self.server.n_now -= 1

    def answer(self, reply):
        body, status, headers = reply.body, reply.status, dict(reply.headers)
        begin, end = self.range(reply)
        if begin is not None and begin >= len(body):
            status, body = 416, b''
        elif begin is not None:
            status = 206
            end = min(end, len(body))
            headers['Content-Range'] = f'bytes {begin}-{end - 1}/{len(body)}'
            body = body[begin:end]
        if reply.etag:
            headers['ETag'] = reply.etag
        if reply.length == -1:
            headers['Transfer-Encoding'] = 'chunked'
        else:
            headers['Content-Length'] = str(len(body) if reply.length is None else reply.length)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        sent = body if reply.cut is None else body[:reply.cut]
        self.send_body(sent, reply)
        if reply.stall:
            self.wfile.flush()
            self.server.released.wait(reply.stall)
        if reply.cut is not None or reply.stall:
            self.close_connection = True
        elif reply.length == -1:
            self.wfile.write(b'0\r\n\r\n')

    def send_body(self, data, reply):
        step = 16 << 10 if reply.rate else len(data) or 1
        cuts = list(range(0, len(data), step))
        if reply.trickle:
            cuts = [0] + [reply.trickle[0] + i * 100 for i in range(reply.trickle[1] + 1)]
        for at, end in zip(cuts, cuts[1:] + [len(data)]):
            piece = data[at:end]
            if reply.trickle and 0 < at < cuts[-1]:
                time.sleep(0.25)
            try:
                if reply.length == -1:
                    self.wfile.write(b'%x\r\n%s\r\n' % (len(piece), piece))
                else:
                    self.wfile.write(piece)
            except OSError:
                self.close_connection = True
                return
            with self.server.lock:
                self.server.sent_bytes += len(piece)
            if reply.rate:
                time.sleep(len(piece) / reply.rate)

    def range(self, reply):
        """The bytes that are asked for: the first one, and the one behind the last; None where it is no part."""
        wanted = self.headers.get('Range', '')
        if not reply.ranges or reply.status != 200 or not wanted.startswith('bytes='):
            return None, None
        if self.headers.get('If-Range') not in (None, reply.etag):
            return None, None
        begin, last = wanted[6:].split('-')
        return int(begin), int(last) + 1 if last else 1 << 62


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, certificate=None):
        super().__init__(('127.0.0.1', 0), Handler)
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.scheme = 'http'
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = 'https'
        self.reset()
        threading.Thread(target=self.serve_forever, kwargs={'poll_interval': 0.05}, daemon=True).start()

    def handle_error(self, *_):
        pass  # a client that goes away is what many tests are about

    def reset(self):
        self.routes, self.requests, self.sent_bytes, self.n_now, self.n_at_once = {}, [], 0, 0, 0

    def url(self, path=''):
        return f'{self.scheme}://127.0.0.1:{self.server_address[1]}{path}'

    def on(self, path, *replies):
        """The replies to requests for a path, one after the other, the last one for all that follow."""
        self.routes[path] = list(replies)
        return self.url(path)

    def repository(self, name, files, record=None):
        """As Hugging Face has it: files by path; record: other digests than theirs."""
        tree = [{'type': 'directory', 'path': 'sub'}]
        for path, data in files.items():
            digest = (record or {}).get(path, sha256(data))
            tree.append({'type': 'file', 'path': path, 'size': len(data), 'oid': '0' * 40, 'lfs': {'oid': digest, 'size': len(data), 'pointerSize': 130}})
            self.on(f'/{name}/resolve/main/{path}', Reply(data, etag=f'"{digest[:8]}"'))
        self.on(f'/api/models/{name}/tree/main', Reply(json.dumps(tree).encode()))
