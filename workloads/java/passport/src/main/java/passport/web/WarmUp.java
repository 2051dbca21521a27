package passport.web;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** The first requests are the service's own, so that no visitor waits for the compiler. */
public final class WarmUp {
    private static final long SECONDS = 2;
    private static final int CLIENTS = 4;
    private static final int TIMEOUT_MILLIS = 1000;
    /** What stands for the partner's answer. */
    public static final String IDENTITY = "/event61/visitor/offer";

    private WarmUp() {
    }

    /** Works on its own requests, with itself as the partner. */
    public static void run(InetSocketAddress server) throws InterruptedException {
        List<Thread> clients = new ArrayList<>();
        for (int i = 0; i < CLIENTS; i++) {
            Thread client = new Thread(() -> ask(server), "warm-up-" + i);
            client.start();
            clients.add(client);
        }
        for (Thread client : clients) {
            client.join();
        }
    }

    private static void ask(InetSocketAddress server) {
        byte[] request = ("GET /event60/visitor/login HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Mozilla/5.0 (warm-up)\r\n\r\n")
            .getBytes(StandardCharsets.US_ASCII);
        long end = System.nanoTime() + SECONDS * 1_000_000_000L;
        try (Socket socket = new Socket(server.getAddress(), server.getPort())) {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(TIMEOUT_MILLIS);
            OutputStream out = socket.getOutputStream();
            InputStream in = socket.getInputStream();
            byte[] buffer = new byte[4096];
            while (System.nanoTime() < end) {
                out.write(request);
                if (in.read(buffer) < 0) {
                    throw new IOException("closed");
                }
            }
        } catch (IOException e) {
            System.err.println("warm-up: " + e); // colder than it should be
        }
    }
}
