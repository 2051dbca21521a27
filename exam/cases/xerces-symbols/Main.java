import java.io.StringReader;
import javax.xml.parsers.SAXParserFactory;
import org.apache.xerces.jaxp.SAXParserFactoryImpl;
import org.xml.sax.InputSource;
import org.xml.sax.helpers.DefaultHandler;

/** Checks that a message is well-formed XML. */
final class Main {
    private static final SAXParserFactory PARSERS = new SAXParserFactoryImpl();

    public static void main(String[] args) throws Exception {
        Server.<String>start(Main::message, message -> {
            PARSERS.newSAXParser().parse(new InputSource(new StringReader(message)), new DefaultHandler());
            return "well-formed";
        });
    }

    /** A message of elements, each of another name of 26 letters; crafted ones are of one String.hashCode(). */
    private static String message(String kind, int size) {
        StringBuilder xml = new StringBuilder("<message>");
        for (int i = 0; i < size; i++) {
            xml.append('<');
            for (int bit = 12; bit >= 0; bit--) {
                boolean set = (i >> bit & 1) != 0;
                xml.append("crafted".equals(kind) ? set ? "Aa" : "BB" : set ? "Ab" : "BB");
            }
            xml.append("/>");
        }
        return xml.append("</message>").toString();
    }
}
