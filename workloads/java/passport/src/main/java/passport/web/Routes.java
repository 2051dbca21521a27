package passport.web;

import java.lang.reflect.Method;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.springframework.beans.MutablePropertyValues;
import org.springframework.web.bind.annotation.RequestMethod;
import org.springframework.web.context.WebApplicationContext;
import org.springframework.web.context.support.StaticWebApplicationContext;
import org.springframework.web.servlet.mvc.method.RequestMappingInfo;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerAdapter;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/**
 * The mappings of the service, a login and an offer for each of its events. With variables in the paths a request is matched
 * against each in turn; literal paths are found in a map.
 */
public final class Routes {
    private static final int EVENTS = 220;

    private Routes() {
    }

    /** The servlet's context, with no class scanned and no proxy made. */
    public static WebApplicationContext context(LoginController controller) throws NoSuchMethodException {
        StaticWebApplicationContext context = new StaticWebApplicationContext();
        // An interceptor counts only if it is there when the mapping is made.
        context.registerSingleton("handlerMapping", RequestMappingHandlerMapping.class,
            new MutablePropertyValues().add("interceptors", new Object[] {new Visitors()}));
        context.registerSingleton("handlerAdapter", RequestMappingHandlerAdapter.class);
        context.refresh();
        RequestMappingHandlerMapping mapping = context.getBean(RequestMappingHandlerMapping.class);
        register(mapping, controller, "variables".equals(System.getProperty("passport.routes")));
        return context;
    }

    private static void register(RequestMappingHandlerMapping mapping, LoginController controller, boolean variables)
        throws NoSuchMethodException {
        RequestMappingInfo.BuilderConfiguration exact = new RequestMappingInfo.BuilderConfiguration();
        exact.setSuffixPatternMatch(false);
        exact.setTrailingSlashMatch(false);
        Method login = LoginController.class.getMethod("login", HttpServletRequest.class, HttpServletResponse.class);
        Method offer = LoginController.class.getMethod("offer", HttpServletResponse.class);
        for (int event = 0; event < EVENTS; event++) {
            String path = "/event" + event + (variables ? "/{visitor}" : "/visitor");
            mapping.registerMapping(get(path + "/login", exact), controller, login);
            mapping.registerMapping(get(path + "/offer", exact), controller, offer);
        }
    }

    private static RequestMappingInfo get(String path, RequestMappingInfo.BuilderConfiguration exact) {
        return RequestMappingInfo.paths(path).methods(RequestMethod.GET).options(exact).build();
    }
}
