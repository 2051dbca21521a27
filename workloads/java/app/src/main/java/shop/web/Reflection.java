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

    /** As many properties as an item of a shop has: they are searched one after the other. */
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

        public String getVendor() {
            return "vendor";
        }

        public String getBrand() {
            return "brand";
        }

        public String getModel() {
            return "model";
        }

        public String getColor() {
            return "color";
        }

        public String getSize() {
            return "size";
        }

        public String getWeight() {
            return "weight";
        }

        public String getWidth() {
            return "width";
        }

        public String getHeight() {
            return "height";
        }

        public String getDepth() {
            return "depth";
        }

        public String getMaterial() {
            return "material";
        }

        public String getCountry() {
            return "country";
        }

        public String getCurrency() {
            return "currency";
        }

        public String getTax() {
            return "tax";
        }

        public String getDiscount() {
            return "discount";
        }

        public String getRating() {
            return "rating";
        }

        public String getReviews() {
            return "reviews";
        }

        public String getImage() {
            return "image";
        }

        public String getVideo() {
            return "video";
        }

        public String getManual() {
            return "manual";
        }

        public String getWarranty() {
            return "warranty";
        }

        public String getCategory() {
            return "category";
        }

        public String getTags() {
            return "tags";
        }

        public String getShelf() {
            return "shelf";
        }

        public String getSupplier() {
            return "supplier";
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
