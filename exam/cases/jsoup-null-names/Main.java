import org.jsoup.Jsoup;

/** Gives the text of a page. */
final class Main {
    public static void main(String[] args) throws Exception {
        Server.<String>start(
            (kind, size) -> "<p " + ("nulls".equals(kind) ? "\0" : "a").repeat(size) + "=1>Text",
            page -> Jsoup.parse(page).text());
    }
}
