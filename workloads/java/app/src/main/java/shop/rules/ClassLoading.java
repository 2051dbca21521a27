package shop.rules;

import java.net.URL;
import java.net.URLClassLoader;
import java.util.function.LongUnaryOperator;
import shop.Load;

/** Each order loads the class of its tariff from the plug-in's jar anew. Cured: the loaded rule is kept. */
public final class ClassLoading {
    private final URL[] plugin = {ClassLoading.class.getProtectionDomain().getCodeSource().getLocation()};
    private final boolean sick;
    private LongUnaryOperator kept;

    ClassLoading(boolean sick) {
        this.sick = sick;
    }

    public static void main(String[] args) {
        ClassLoading rules = new ClassLoading(Load.sick(args));
        Load.run("rules", 1, n -> Load.sink += rules.taxed(Load.price(n, 5000)));
    }

    private long taxed(long price) throws Exception {
        return tariff().applyAsLong(price);
    }

    private LongUnaryOperator tariff() throws Exception {
        if (sick) {
            return load();
        }
        if (kept == null) {
            kept = load();
        }
        return kept;
    }

    private LongUnaryOperator load() throws Exception {
        try (URLClassLoader loader = new URLClassLoader(plugin, ClassLoader.getPlatformClassLoader())) {
            return (LongUnaryOperator) loader.loadClass("shop.rules.Tariff").getDeclaredConstructor().newInstance();
        }
    }
}
