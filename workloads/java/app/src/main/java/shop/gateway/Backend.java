package shop.gateway;

import java.io.IOException;
import java.net.Socket;

/** A connection to a backend that echoes 64 bytes, when it gets round to it. */
final class Backend implements AutoCloseable {
    private final Socket socket;
    private final byte[] message = new byte[64];

    Backend(String host, int port) throws IOException {
        socket = new Socket(host, port);
        socket.setTcpNoDelay(true);
    }

    long ask() throws IOException {
        socket.getOutputStream().write(message);
        for (int length = 0; length < message.length; ) {
            int n = socket.getInputStream().read(message, length, message.length - length);
            if (n < 0) {
                throw new IOException("the backend closed the connection");
            }
            length += n;
        }
        return message[0];
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
