import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.Id;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import java.util.List;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** A page that lists the books of authors, from a database that is elsewhere. */
public final class Main {
    @Entity(name = "Author")
    public static class Author {
        @Id
        public int id;
        public String name;
        @OneToMany(mappedBy = "author", fetch = FetchType.LAZY)
        public List<Book> books;
    }

    @Entity(name = "Book")
    public static class Book {
        @Id
        public int id;
        public String title;
        @ManyToOne(fetch = FetchType.LAZY)
        public Author author;
    }

    public static void main(String[] args) throws Exception {
        SessionFactory sessions = new Configuration()
            .addAnnotatedClass(Author.class)
            .addAnnotatedClass(Book.class)
            .setProperty("hibernate.connection.url", "jdbc:h2:tcp://10.77.0.2:9092/mem:shop;DB_CLOSE_DELAY=-1")
            .setProperty("hibernate.connection.pool_size", "8")
            .setProperty("hibernate.hbm2ddl.auto", "create")
            .buildSessionFactory();
        sessions.inTransaction(s -> {
            s.createNativeMutationQuery("INSERT INTO Author (id, name) "
                + "SELECT x, 'author ' || x FROM SYSTEM_RANGE(1, 25)").executeUpdate();
            s.createNativeMutationQuery("INSERT INTO Book (id, title, author_id) "
                + "SELECT x, 'book ' || x, MOD(x, 25) + 1 FROM SYSTEM_RANGE(1, 100)").executeUpdate();
        });
        String query = "from Author a" + (args.length > 0 ? " " + args[0] : "");
        Web.serve("/authors", 8, () -> sessions.fromTransaction(s -> {
            StringBuilder page = new StringBuilder();
            for (Author author : s.createSelectionQuery(query, Author.class).list()) {
                page.append(author.name).append(": ").append(author.books.size()).append('\n');
            }
            return page.toString();
        }));
    }
}
