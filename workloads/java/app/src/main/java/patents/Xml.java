package patents;

import java.io.StringWriter;
import javax.xml.bind.JAXBContext;
import javax.xml.bind.JAXBException;
import javax.xml.bind.Marshaller;

/**
 * Writes documents as XML. Properties: contexts, one for all or each claim its own (each); paragraphs, joined by a builder or by
 * concatenation (concat).
 */
final class Xml {
    private final boolean eachItsOwn = System.getProperty("contexts", "").equals("each");
    private final boolean concatenates = System.getProperty("paragraphs", "").equals("concat");
    private final JAXBContext shared = newContext();

    String of(Document d) {
        StringBuilder out = new StringBuilder(d.description.length() + 8192);
        out.append("<document number='").append(d.number).append("'><title>").append(d.title).append("</title>");
        for (Claim c : d.claims) {
            out.append(claim(c));
        }
        out.append(concatenates ? concatenated(d.description) : built(d.description));
        return out.append("</document>").toString();
    }

    private String claim(Claim c) {
        try {
            Marshaller writer = (eachItsOwn ? newContext() : shared).createMarshaller();
            writer.setProperty(Marshaller.JAXB_FRAGMENT, true);
            StringWriter out = new StringWriter();
            writer.marshal(c, out);
            return out.toString();
        } catch (JAXBException e) {
            throw new IllegalStateException(e);
        }
    }

    private static JAXBContext newContext() {
        try {
            return JAXBContext.newInstance(Claim.class);
        } catch (JAXBException e) {
            throw new IllegalStateException(e);
        }
    }

    private static String concatenated(String description) {
        String xml = "";
        int number = 0;
        for (String paragraph : description.split("\n")) {
            xml += "<p n='";
            xml += ++number;
            xml += "'>";
            xml += paragraph;
            xml += "</p>";
            xml += '\n';
        }
        return xml;
    }

    private static StringBuilder built(String description) {
        StringBuilder xml = new StringBuilder(description.length() * 3 / 2);
        int number = 0;
        for (String paragraph : description.split("\n")) {
            xml.append("<p n='").append(++number).append("'>").append(paragraph).append("</p>").append('\n');
        }
        return xml;
    }
}
