import java.sql.Connection;
import java.sql.DriverManager;

/** A customer's flights, from a database in the program. */
final class Main {
    private static final ThreadLocal<Connection> CONNECTION = ThreadLocal.withInitial(Main::connect);

    public static void main(String[] args) throws Exception {
        try (Connection c = DriverManager.getConnection("jdbc:derby:memory:air;create=true")) {
            try (var s = c.createStatement()) {
                s.execute("CREATE TABLE flight (id INT PRIMARY KEY, customer INT, miles INT, note VARCHAR(60))");
            }
            c.setAutoCommit(false);
            try (var s = c.prepareStatement("INSERT INTO flight VALUES (?, ?, ?, ?)")) {
                for (int i = 0; i < 120_000; i++) {
                    s.setInt(1, i);
                    s.setInt(2, i * 7 % 10_000);
                    s.setInt(3, i % 4000);
                    s.setString(4, "a window seat, and no fish, for flight number " + i);
                    s.addBatch();
                }
                s.executeBatch();
            }
            for (String statement : args) {
                try (var s = c.createStatement()) {
                    s.execute(statement);
                }
            }
            c.commit();
        }
        Web.serve("/flights", 4, () -> {
            try (var s = CONNECTION.get().prepareStatement("SELECT SUM(miles) FROM flight WHERE customer = ?")) {
                s.setInt(1, (int) (System.nanoTime() % 10_000));
                try (var rows = s.executeQuery()) {
                    rows.next();
                    return rows.getInt(1) + "\n";
                }
            }
        });
    }

    private static Connection connect() {
        try {
            return DriverManager.getConnection("jdbc:derby:memory:air");
        } catch (java.sql.SQLException e) {
            throw new IllegalStateException(e);
        }
    }
}
