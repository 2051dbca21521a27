package shop;

import java.util.Map;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** What things cost. */
@RestController
public class Prices {
    @GetMapping("/price")
    public Map<String, Object> price() {
        return Map.of("price", 7, "currency", "EUR");
    }
}
