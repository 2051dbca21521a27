package passport.partner;

import java.io.IOException;
import java.net.BindException;
import java.net.InetSocketAddress;
import java.net.NoRouteToHostException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;

/** The partner's API, with a connection for each call, which this side closes. One thread serves all calls. */
public final class IdentityApi {
    private static final int BUFFER = 2048;
    private static final String LENGTH = "Content-Length: ";
    /** Calls that had no local port are made again after this. */
    private static final int PAUSE_MILLIS = 20;

    private final InetSocketAddress address;
    private final byte[] request;
    private final Selector selector;
    private final Queue<Call> waiting = new ConcurrentLinkedQueue<>();

    public IdentityApi(InetSocketAddress address, String path) throws IOException {
        this.address = address;
        this.request = ("GET " + path + " HTTP/1.1\r\nHost: " + address.getHostString() + "\r\n\r\n")
            .getBytes(StandardCharsets.US_ASCII);
        this.selector = Selector.open();
        Thread thread = new Thread(this::serve, "partner");
        thread.setDaemon(true);
        thread.start();
    }

    /** What the partner says of a visitor, whose length stands for it. */
    public CompletableFuture<Integer> identify(long visitor) {
        Call call = new Call();
        waiting.add(call);
        selector.wakeup();
        return call.answer;
    }

    private void serve() {
        while (true) {
            try {
                boolean ports = begin();
                selector.select(key -> ((Call) key.attachment()).go(key), ports ? 0 : PAUSE_MILLIS);
            } catch (IOException e) {
                throw new IllegalStateException("identity API " + address, e);
            }
        }
    }

    /** Connects for all that wait, until there is no local port; then it gives false, and they wait on. */
    private boolean begin() {
        for (Call call; (call = waiting.peek()) != null; waiting.remove()) {
            try {
                call.connect();
            } catch (BindException | NoRouteToHostException noPort) { // EADDRNOTAVAIL
                return false;
            } catch (IOException e) {
                call.answer.completeExceptionally(e);
            }
        }
        return true;
    }

    private final class Call {
        final CompletableFuture<Integer> answer = new CompletableFuture<>();
        private final ByteBuffer in = ByteBuffer.allocate(BUFFER);

        void connect() throws IOException {
            SocketChannel channel = SocketChannel.open();
            try {
                channel.configureBlocking(false);
                channel.connect(address);
                channel.register(selector, SelectionKey.OP_CONNECT, this);
            } catch (IOException e) {
                channel.close();
                throw e;
            }
        }

        void go(SelectionKey key) {
            SocketChannel channel = (SocketChannel) key.channel();
            try {
                if (key.isConnectable() && channel.finishConnect()) {
                    channel.write(ByteBuffer.wrap(request)); // fits any socket's buffer
                    key.interestOps(SelectionKey.OP_READ);
                } else if (key.isReadable() && read(channel)) {
                    channel.close();
                    answer.complete(in.position());
                }
            } catch (IOException | RuntimeException e) { // of an answer that is none, too
                close(channel);
                answer.completeExceptionally(e);
            }
        }

        private void close(SocketChannel channel) {
            try {
                channel.close();
            } catch (IOException e) {
                // It is gone, and nothing was left to be sent.
            }
        }

        /** Whether the whole answer is there: a head, and the body whose length it gives. */
        private boolean read(SocketChannel channel) throws IOException {
            if (channel.read(in) < 0) {
                throw new IOException("the partner closed the connection");
            }
            String text = new String(in.array(), 0, in.position(), StandardCharsets.ISO_8859_1);
            int head = text.indexOf("\r\n\r\n");
            if (head < 0) {
                return false;
            }
            int field = text.indexOf(LENGTH) + LENGTH.length();
            int length = Integer.parseInt(text.substring(field, text.indexOf("\r\n", field)));
            return in.position() >= head + "\r\n\r\n".length() + length;
        }
    }
}
