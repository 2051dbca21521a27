package shop.io;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.util.Map;
import javax.xml.bind.JAXBContext;
import javax.xml.bind.Unmarshaller;
import javax.xml.bind.annotation.XmlRootElement;
import javax.xml.transform.stream.StreamSource;
import org.eclipse.persistence.jaxb.JAXBContextFactory;
import shop.Load;

/**
 * A gateway reads JSON with EclipseLink MOXy: claims of patents, a line break to each 120 characters. Arguments: sick or cured,
 * then the lengths of the documents to read in turn, in characters. Version 2.5 takes four times as long for twice the length.
 * Cured: Jackson.
 */
public final class MoxyJson {
    @XmlRootElement
    public static final class Claim {
        public String text;
    }

    private final ObjectMapper jackson = new ObjectMapper();
    private final JAXBContext context;
    private final boolean sick;

    MoxyJson(boolean sick) throws Exception {
        this.sick = sick;
        this.context = JAXBContextFactory.createContext(new Class<?>[] {Claim.class}, null);
    }

    public static void main(String[] args) throws Exception {
        MoxyJson gateway = new MoxyJson(Load.sick(args));
        String[] documents = new String[args.length - 1];
        for (int i = 0; i < documents.length; i++) {
            documents[i] = document(Integer.parseInt(args[i + 1]));
        }
        Load.run("gateway", 1, Load.timed(n -> Load.sink += gateway.translate(documents[(int) (n % documents.length)])));
    }

    private static String document(int length) {
        StringBuilder text = new StringBuilder(length + 100).append("{\"claim\":{\"text\":\"");
        while (text.length() < length) {
            text.append("a device as claimed in any of the claims before, wherein a lid is hinged to a body such that the body can be opened\\n");
        }
        return text.append("\"}}").toString();
    }

    private long translate(String json) throws Exception {
        long start = System.nanoTime();
        long length = sick ? readWithMoxy(json) : readWithJackson(json);
        if (Boolean.getBoolean("timings")) {
            System.out.printf("%d characters: %.1f ms%n", json.length(), (System.nanoTime() - start) / 1e6);
        }
        return length;
    }

    private long readWithMoxy(String json) throws Exception {
        Unmarshaller reader = context.createUnmarshaller();
        reader.setProperty("eclipselink.media-type", "application/json");
        return ((Claim) reader.unmarshal(new StreamSource(new StringReader(json)))).text.length();
    }

    private long readWithJackson(String json) throws Exception {
        return ((Map<?, ?>) jackson.readValue(json, Map.class).get("claim")).get("text").toString().length();
    }
}
