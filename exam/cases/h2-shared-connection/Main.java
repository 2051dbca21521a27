import java.sql.Connection;
import java.sql.SQLException;
import org.h2.jdbcx.JdbcConnectionPool;

/** A shop whose pages each read one row of a database that is elsewhere. */
final class Main {
    private static final String URL = "jdbc:h2:tcp://10.77.0.2:9092/mem:shop;DB_CLOSE_DELAY=-1";

    public static void main(String[] args) throws Exception {
        JdbcConnectionPool pool = JdbcConnectionPool.create(URL, "", "");
        pool.setMaxConnections(16);
        Connection one = pool.getConnection();
        try (var statement = one.createStatement()) {
            statement.execute("CREATE TABLE item (id INT PRIMARY KEY, price INT)");
            statement.execute("INSERT INTO item SELECT x, x * 7 FROM SYSTEM_RANGE(1, 1000)");
        }
        boolean shared = args[0].equals("1");
        if (!shared) {
            one.close();
        }
        Web.serve("/item", 16, () -> {
            if (shared) {
                return price(one);
            }
            try (Connection connection = pool.getConnection()) {
                return price(connection);
            }
        });
    }

    private static String price(Connection connection) throws SQLException {
        try (var statement = connection.prepareStatement("SELECT price FROM item WHERE id = ?")) {
            statement.setInt(1, (int) (System.nanoTime() % 1000) + 1);
            try (var rows = statement.executeQuery()) {
                rows.next();
                return rows.getInt(1) + "\n";
            }
        }
    }
}
