package shop.web;

import java.io.StringReader;
import java.io.StringWriter;
import javax.xml.transform.Templates;
import javax.xml.transform.Transformer;
import javax.xml.transform.TransformerException;
import javax.xml.transform.TransformerFactory;
import javax.xml.transform.stream.StreamResult;
import javax.xml.transform.stream.StreamSource;
import shop.Load;

/** Every receipt compiles the style sheet that makes it again. Cured: compiled once. */
public final class Stylesheets {
    private static final String SHEET = "<xsl:stylesheet version='1.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'>"
            + "<xsl:template match='/order'><html><xsl:for-each select='item'>"
            + "<p><xsl:value-of select='@name'/>: <xsl:value-of select='price'/></p>"
            + "</xsl:for-each></html></xsl:template></xsl:stylesheet>";
    private static final String ORDER = "<order><item name='tea'><price>3</price></item>"
            + "<item name='cup'><price>5</price></item></order>";
    private static final Templates COMPILED = compile();

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("web", 1, n -> Load.sink += Load.price(n, 2000) + receipt(sick));
    }

    private static long receipt(boolean sick) {
        try {
            Transformer transformer = (sick ? compile() : COMPILED).newTransformer();
            StringWriter out = new StringWriter();
            transformer.transform(new StreamSource(new StringReader(ORDER)), new StreamResult(out));
            return out.getBuffer().length();
        } catch (TransformerException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Templates compile() {
        try {
            return TransformerFactory.newInstance().newTemplates(new StreamSource(new StringReader(SHEET)));
        } catch (TransformerException e) {
            throw new IllegalStateException(e);
        }
    }
}
