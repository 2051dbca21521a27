package shop.web;

import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import shop.Load;

/** A template finds each getter by name on every access. Cured: it keeps what it has found. */
public final class Reflection {
    private final Map<String, Method> found = new HashMap<>();
    private final boolean sick;

    Reflection(boolean sick) {
        this.sick = sick;
    }

    public static final class Item {
        public String getName() {
            return "kettle";
        }

        public Integer getPrice() {
            return 4999;
        }

        public Integer getStock() {
            return 12;
        }

        public String getUnit() {
            return "piece";
        }
    }

    public static void main(String[] args) {
        Reflection template = new Reflection(Load.sick(args));
        Item item = new Item();
        Load.run("web", 1, n -> Load.sink += Load.price(n, 100) + template.render(item));
    }

    private long render(Item item) throws ReflectiveOperationException {
        return read(item, "getName").hashCode() + read(item, "getPrice").hashCode();
    }

    private Object read(Object bean, String getter) throws ReflectiveOperationException {
        return method(bean.getClass(), getter).invoke(bean);
    }

    private Method method(Class<?> type, String name) throws ReflectiveOperationException {
        if (sick) {
            return type.getMethod(name);
        }
        Method m = found.get(name);
        if (m == null) {
            m = type.getMethod(name);
            found.put(name, m);
        }
        return m;
    }
}
