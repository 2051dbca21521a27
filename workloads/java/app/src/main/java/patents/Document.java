package patents;

import java.util.List;
import javax.xml.bind.annotation.XmlRootElement;

/** A published patent, as the register gives it. */
@XmlRootElement
public final class Document {
    public String number;
    public String title;
    public List<Claim> claims;
    /** Paragraphs, a line each. */
    public String description;
}
