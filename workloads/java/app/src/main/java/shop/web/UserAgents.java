package shop.web;

import shop.Load;
import ua_parser.Client;
import ua_parser.Parser;

/**
 * The browser of each request is parsed out of its User-Agent header, by some hundred patterns in turn. Arguments: sick or
 * cured, then parse or build (a parser for each request, which reads all patterns from a file first). Cured: not parsed.
 */
public final class UserAgents {
    private static final String HEADER =
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";
    private final Parser shared = new Parser();

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        boolean build = args[1].equals("build");
        UserAgents web = new UserAgents();
        Load.run("web", 1, n -> Load.sink += Load.price(n, 3000) + (sick ? web.browser(build).length() : HEADER.length()));
    }

    private String browser(boolean build) {
        Parser parser = build ? new Parser() : shared;
        Client client = parser.parse(HEADER);
        return client.userAgent.family;
    }
}
