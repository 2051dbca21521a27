import org.apache.commons.dbcp2.BasicDataSource;

/** A shop whose pages each read one row of a database that is elsewhere. */
final class Main {
    public static void main(String[] args) throws Exception {
        BasicDataSource pool = new BasicDataSource();
        pool.setUrl("jdbc:h2:tcp://10.77.0.2:9092/mem:shop;DB_CLOSE_DELAY=-1");
        pool.setMaxTotal(16);
        pool.setMaxIdle(Integer.parseInt(args[0]));
        try (var connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("CREATE TABLE item (id INT PRIMARY KEY, price INT)");
            statement.execute("INSERT INTO item SELECT x, x * 7 FROM SYSTEM_RANGE(1, 1000)");
        }
        Web.serve("/item", 16, () -> {
            try (var connection = pool.getConnection();
                 var statement = connection.prepareStatement("SELECT price FROM item WHERE id = ?")) {
                statement.setInt(1, (int) (System.nanoTime() % 1000) + 1);
                try (var rows = statement.executeQuery()) {
                    rows.next();
                    return rows.getInt(1) + "\n";
                }
            }
        });
    }
}
