import org.apache.tika.sax.StandardsText;

/** Finds references of standards in a text. */
final class Main {
    public static void main(String[] args) throws Exception {
        Server.<String>start(
            (kind, size) -> "This part refers to " + ("capitals".equals(kind) ? "A" : "of a ").repeat(size) + " as of ISO 9001.",
            text -> StandardsText.extractStandardReferences(text, 0.5).size() + " references");
    }
}
