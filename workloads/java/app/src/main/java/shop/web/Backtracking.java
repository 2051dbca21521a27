package shop.web;

import java.util.regex.Pattern;
import shop.Load;

/**
 * A pattern with a repetition inside a repetition inside a third tries every division of a long word before it gives up. Since
 * JDK 9 the outermost repetition remembers where it has failed, those inside do not. Cured: a pattern that accepts the same
 * texts and can divide them in one way only.
 */
public final class Backtracking {
    private static final Pattern AMBIGUOUS = Pattern.compile("((\\w+\\s?)+,?)+;");
    private static final Pattern PLAIN = Pattern.compile("\\w++(?:(?:\\s,?|,)\\w++)*+(?:\\s,?|,)?;");
    private static final String TEXT = "aaaaaaaaaaaaaaaaaa,";

    public static void main(String[] args) {
        Pattern pattern = Load.sick(args) ? AMBIGUOUS : PLAIN;
        Load.run("web", 1, n -> Load.sink += Load.price(n, 2000) + validate(pattern));
    }

    private static long validate(Pattern pattern) {
        return pattern.matcher(TEXT).matches() ? 1 : 0;
    }
}
