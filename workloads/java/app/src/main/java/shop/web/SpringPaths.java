package shop.web;

import java.lang.reflect.Method;
import org.springframework.mock.web.MockHttpServletRequest;
import org.springframework.web.context.support.StaticWebApplicationContext;
import org.springframework.web.servlet.mvc.method.RequestMappingInfo;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;
import shop.Load;

/**
 * Spring MVC finds the handler of a request among 200 mappings. Their paths hold variables, so each is matched in turn.
 * Cured: literal paths, with the variable in the query, which are found in a map.
 */
public final class SpringPaths {
    private final RequestMappingHandlerMapping mapping = new RequestMappingHandlerMapping();

    public static void main(String[] args) throws Exception {
        boolean sick = Load.sick(args);
        SpringPaths web = new SpringPaths();
        web.register(sick);
        String path = "/api/v1/things150/" + (sick ? "4711" : "item");
        Load.run("web", 1, n -> Load.sink += Load.price(n, 30_000) + web.dispatch(path));
    }

    private void register(boolean sick) throws Exception {
        StaticWebApplicationContext context = new StaticWebApplicationContext();
        context.refresh();
        mapping.setApplicationContext(context);
        mapping.afterPropertiesSet();
        Method handler = SpringPaths.class.getMethod("handle");
        for (int i = 0; i < 200; i++) {
            String path = "/api/v1/things" + i + (sick ? "/{id}" : "/item");
            mapping.registerMapping(RequestMappingInfo.paths(path).build(), this, handler);
        }
    }

    public void handle() {
    }

    private long dispatch(String path) throws Exception {
        MockHttpServletRequest request = new MockHttpServletRequest("GET", path);
        return mapping.getHandler(request).hashCode();
    }
}
