import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;
import org.apache.commons.fileupload.FileItem;
import org.apache.commons.fileupload.disk.DiskFileItemFactory;
import org.apache.commons.io.FileCleaningTracker;

/** Takes uploads. It begins as one that has taken many. */
final class Main {
    private static final DiskFileItemFactory ITEMS = new DiskFileItemFactory(1 << 20, null);
    private static final byte[] PART = new byte[8192];

    public static void main(String[] args) throws Exception {
        ITEMS.setFileCleaningTracker(new FileCleaningTracker());
        for (int i = Integer.parseInt(args[0]); i > 0; i--) {
            ITEMS.createItem("photo", "image/jpeg", false, "photo.jpg");
        }
        for (int i = 0; i < 2; i++) { // what is garbage is gone before the first request, files' trackers too
            System.gc();
            Thread.sleep(2000);
        }
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 256);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/upload", Main::upload);
        server.start();
    }

    private static void upload(HttpExchange exchange) throws IOException {
        for (int photo = 0; photo < 8; photo++) {
            FileItem item = ITEMS.createItem("photo", "image/jpeg", false, "photo.jpg");
            try (OutputStream out = item.getOutputStream()) {
                for (int i = 0; i < 110; i++) {
                    out.write(PART);
                }
            }
        }
        exchange.sendResponseHeaders(204, -1);
        exchange.close();
    }
}
