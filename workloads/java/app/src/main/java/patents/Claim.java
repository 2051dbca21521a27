package patents;

import java.util.List;
import javax.xml.bind.annotation.XmlAttribute;
import javax.xml.bind.annotation.XmlRootElement;

/** What is claimed, and by reference to what. */
@XmlRootElement
public final class Claim {
    @XmlAttribute public int number;
    public String preamble;
    public String body;
    public Category category;
    public List<Reference> references;

    public enum Category { DEVICE, METHOD, USE }

    public static final class Reference {
        @XmlAttribute public int claim;
        public String part;
    }
}
