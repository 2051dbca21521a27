package shop.gateway;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLServerSocket;
import javax.net.ssl.SSLSocket;
import shop.Load;

/** A server of HTTP over TLS at the address in the argument: an RSA key made at start, and keep-alive for who wants it. */
public final class TlsServer {
    private static final char[] PASSWORD = "in-a-scenario".toCharArray();
    private static final byte[] ANSWER =
        "HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\na small answer".getBytes(StandardCharsets.US_ASCII);

    public static void main(String[] args) throws Exception {
        SSLServerSocket listener = (SSLServerSocket) context().getServerSocketFactory().createServerSocket();
        listener.bind(new InetSocketAddress(args[0], 8443), 1024);
        ExecutorService pool = Executors.newFixedThreadPool(16);
        while (true) {
            SSLSocket connection = (SSLSocket) listener.accept();
            pool.execute(() -> serve(connection));
        }
    }

    private static SSLContext context() throws Exception {
        File file = new File("server.p12");
        String keytool = System.getProperty("java.home") + "/bin/keytool";
        Process made = new ProcessBuilder(keytool, "-genkeypair", "-alias", "server", "-keyalg", "RSA", "-keysize", "2048",
            "-dname", "CN=localhost", "-validity", "2", "-storetype", "PKCS12", "-keystore", file.getPath(),
            "-storepass", new String(PASSWORD)).inheritIO().start();
        if (made.waitFor() != 0) {
            throw new IOException("keytool made no key");
        }
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = new FileInputStream(file)) {
            store.load(in, PASSWORD);
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, PASSWORD);
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(keys.getKeyManagers(), null, null);
        return tls;
    }

    private static void serve(SSLSocket connection) {
        try (connection) {
            connection.setTcpNoDelay(true);
            InputStream in = connection.getInputStream();
            OutputStream out = connection.getOutputStream();
            for (String head = ""; head != null && !head.contains("Connection: close"); ) {
                head = readHead(in);
                if (head != null) {
                    Load.sink += Load.price(1, 1000);
                    out.write(ANSWER);
                }
            }
        } catch (IOException e) {
            // The client went away.
        }
    }

    /** Reads up to the empty line that ends a request; null when there is none. */
    private static String readHead(InputStream in) throws IOException {
        byte[] buffer = new byte[4096];
        int length = 0;
        while (true) {
            int n = in.read(buffer, length, buffer.length - length);
            if (n < 0) {
                return null;
            }
            length += n;
            if (length >= 4 && buffer[length - 1] == '\n' && buffer[length - 3] == '\n') {
                return new String(buffer, 0, length, StandardCharsets.US_ASCII);
            }
        }
    }
}
