import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.concurrent.Executors;

/** An order service: an order has a transaction, and takes its number from a table in a transaction of its own. */
final class Main {
    private static HikariDataSource pool;

    public static void main(String[] args) throws Exception {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:h2:mem:shop;DB_CLOSE_DELAY=-1");
        config.setMaximumPoolSize(Integer.parseInt(args[0]));
        config.setConnectionTimeout(3000);
        pool = new HikariDataSource(config);
        update("CREATE SEQUENCE numbers");
        update("CREATE TABLE orders (id BIGINT, at TIMESTAMP)");
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 256);
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.createContext("/order", Main::order);
        server.start();
    }

    private static void order(HttpExchange exchange) throws IOException {
        int status = 200;
        try (Connection outer = pool.getConnection()) {
            Thread.sleep(15); // the payment, at another service
            update("INSERT INTO orders VALUES (NEXT VALUE FOR numbers, CURRENT_TIMESTAMP)");
        } catch (SQLException e) {
            status = 503;
        } catch (InterruptedException e) {
            throw new IOException(e);
        }
        exchange.sendResponseHeaders(status, -1);
        exchange.close();
    }

    private static void update(String sql) throws SQLException {
        try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.executeUpdate(sql);
        }
    }
}
