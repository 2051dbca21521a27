package booking.web;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;

/** HTTP, with a thread for each connection, which is kept for who wants it. */
public final class Front {
    /** What is done for each request. */
    public interface Handler {
        byte[] answer() throws IOException, InterruptedException;
    }

    private static final int BACKLOG = 1024;

    private final Handler handler;
    private final ExecutorService connections;

    public Front(Handler handler, ExecutorService connections) {
        this.handler = handler;
        this.connections = connections;
    }

    public static ServerSocket listen(InetSocketAddress address) throws IOException {
        ServerSocket listener = new ServerSocket();
        listener.bind(address, BACKLOG);
        return listener;
    }

    /** Serves until the listener is closed. */
    public void serve(ServerSocket listener) {
        try {
            while (true) {
                Socket connection = listener.accept();
                connections.execute(() -> serve(connection));
            }
        } catch (IOException e) {
            // Closed.
        }
    }

    private void serve(Socket connection) {
        try (connection) {
            connection.setTcpNoDelay(true);
            InputStream in = connection.getInputStream();
            OutputStream out = connection.getOutputStream();
            for (String head = readHead(in); head != null; head = readHead(in)) {
                write(out, handler.answer());
                if (head.contains("Connection: close")) {
                    return;
                }
            }
        } catch (IOException | InterruptedException e) {
            // The client went away.
        }
    }

    private static void write(OutputStream out, byte[] body) throws IOException {
        ByteArrayOutputStream answer = new ByteArrayOutputStream(body.length + 128);
        String head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + body.length + "\r\n\r\n";
        answer.write(head.getBytes(StandardCharsets.US_ASCII));
        answer.write(body);
        out.write(answer.toByteArray());
    }

    /** Reads up to the empty line that ends a request; null when there is none. */
    private static String readHead(InputStream in) throws IOException {
        byte[] buffer = new byte[4096];
        int length = 0;
        while (length < buffer.length) {
            int n = in.read(buffer, length, buffer.length - length);
            if (n < 0) {
                return null;
            }
            length += n;
            if (length >= 4 && buffer[length - 1] == '\n' && buffer[length - 3] == '\n') {
                return new String(buffer, 0, length, StandardCharsets.US_ASCII);
            }
        }
        throw new IOException("a head longer than " + buffer.length + " bytes");
    }
}
